"""Uploads that wait for a person's choice: an archive with several skills is kept until one is chosen."""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta
from typing import BinaryIO, cast

from django.core.files import File
from django.core.files.storage import default_storage
from django.utils import timezone

from sandboxes.errors import InvalidRequest

__all__ = ["KEPT_FOR", "forget_upload", "keep_upload", "open_upload", "sweep_uploads"]

KEPT_FOR = timedelta(hours=2)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_FOLDER = "uploads"


def keep_upload(*, tenant_id: str, stream: BinaryIO) -> str:
    """Store the stream from its start. Returns the token that opens it again, for this tenant only."""
    token = secrets.token_urlsafe(32)
    stream.seek(0)
    default_storage.save(_path(tenant_id, token), File(stream))
    return token


def open_upload(*, tenant_id: str, token: str) -> BinaryIO:
    """To be closed by the caller. InvalidRequest if it was not kept, or not for so long."""
    path = _path(tenant_id, token)
    if not default_storage.exists(path):
        raise InvalidRequest("The upload is no longer there; choose the file again.")
    return cast("BinaryIO", default_storage.open(path, "rb"))


def forget_upload(*, tenant_id: str, token: str) -> None:
    """Idempotent."""
    default_storage.delete(_path(tenant_id, token))


def sweep_uploads(*, now: datetime | None = None) -> int:
    """Delete those that nobody came back for. Returns how many."""
    oldest = (now or timezone.now()) - KEPT_FOR
    deleted = 0
    if not default_storage.exists(_FOLDER):
        return 0
    for tenant in default_storage.listdir(_FOLDER)[0]:
        for name in default_storage.listdir(f"{_FOLDER}/{tenant}")[1]:
            path = f"{_FOLDER}/{tenant}/{name}"
            if default_storage.get_modified_time(path) < oldest:
                default_storage.delete(path)
                deleted += 1
    return deleted


def _path(tenant_id: str, token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest("The upload is no longer there; choose the file again.")
    return f"{_FOLDER}/{tenant_id}/{token}"
