"""Forms with files: stored on disk while they are read, deleted when the block ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http import HttpRequest, QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.datastructures import MultiValueDict

from console.api.errors import ApiError
from console.api.incoming import Incoming

__all__ = ["Form", "parse_files", "parse_form"]


@dataclass(frozen=True, slots=True)
class Form:
    fields: QueryDict
    files: MultiValueDict[str, Any]

    def close(self) -> None:
        for _, files in self.files.lists():
            for file in files:
                file.close()


@asynccontextmanager
async def parse_files(
    request: HttpRequest, incoming: Incoming, limit_bytes: int
) -> AsyncIterator[Form]:
    """ApiError for another media type, a broken form or one that is too large."""
    _check_media(request)
    body = await incoming.spool(limit_bytes)
    try:
        form = await asyncio.to_thread(parse_form, request, body)
    finally:
        body.close()
    try:
        yield form
    finally:
        form.close()


def parse_form(request: HttpRequest, body: IO[bytes]) -> Form:
    _check_media(request)
    body.seek(0, 2)
    meta = {**request.META, "CONTENT_LENGTH": str(body.tell())}
    body.seek(0)
    handler = TemporaryFileUploadHandler(request)
    try:
        parser = MultiPartParser(meta, cast(Any, body), [handler], "utf-8")
        fields, files = parser.parse()
    except BaseException as error:
        # The parser closes the files that were whole; this is the one that broke off.
        handler.upload_interrupted()
        if isinstance(error, MultiPartParserError):
            raise ApiError("invalid_request", f"The form can't be read: {error}.") from error
        raise
    return Form(fields, files)


def _check_media(request: HttpRequest) -> None:
    if not request.headers.get("Content-Type", "").lower().startswith("multipart/form-data"):
        raise ApiError("unsupported_media_type", "Send the files as multipart/form-data.")
