"""Files staged for a session, and staged again for its next sandbox.

The content lies in the console's storage under its digest, in a folder of the session's own; the rows
say which path holds what. A sandbox that was made or claimed gets what it lacks before anybody can use
it (`restore` is the `prepare` of a resolve; `console.fleet.sessions` has the doors). Destroying the session forgets it all.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import posixpath
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import IO

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from console.fleet.limits import capped, readable
from console.fleet.models import Attachment, Session, SessionState
from console.fleet.workspace import (
    INPUT_DIR,
    ensure_workspace,
    files_of,
    remove_file,
    workspace_path,
    write_file,
)
from sandboxes.client import SandboxClient
from sandboxes.errors import Conflict, InvalidRequest, NotFound, SandboxError
from sandboxes.sessions import SessionKey
from sandboxes.types import Sandbox

__all__ = [
    "OpenSandbox",
    "follow_move",
    "follow_removal",
    "forget",
    "forget_all",
    "restore",
    "stage",
    "sweep",
]

log = logging.getLogger(__name__)

OpenSandbox = Callable[[], Awaitable[tuple[SandboxClient, Sandbox]]]
"""The sandbox that the session has now. Waits for a rebuild that is under way."""
Work = Callable[[SandboxClient, Sandbox], Awaitable[None]]

_CHUNK_BYTES = 256 * 1024
_MOST_MOVES = 5
_SPOOL_BYTES = 1024 * 1024
_FOLDER = "attachments"
_UNCLAIMED = timedelta(hours=1)
"""Content younger than this may belong to an upload whose row is not written yet."""


async def stage(
    *,
    session: Session,
    name: str,
    data: AsyncIterable[bytes],
    open_sandbox: OpenSandbox,
    actor: str = "",
) -> Attachment:
    """Put a file under /workspace/input and remember it. A name that is taken is replaced.

    The session's sandbox may be replaced meanwhile: whichever it has in the end has the file. InvalidRequest
    past SKILLYARD_ATTACHMENT_MAX_BYTES for the file, or past what a session may have in all
    (SKILLYARD_ATTACHMENTS_MAX_BYTES, SKILLYARD_ATTACHMENTS_MAX_COUNT): then nothing is changed.
    """
    path = _relative(name)
    spool: IO[bytes] = await asyncio.to_thread(tempfile.SpooledTemporaryFile, _SPOOL_BYTES)
    try:
        digest, size = await _spool(capped(data, settings.SKILLYARD_ATTACHMENT_MAX_BYTES), spool)
        await _check_room(session, path, size)
        row = Attachment(
            session=session, path=path, digest=digest, size_bytes=size, created_by=actor
        )
        await sync_to_async(_store)(row.stored_as, spool)

        async def put(client: SandboxClient, sandbox: Sandbox) -> None:
            await ensure_workspace(client, sandbox)
            await write_file(files_of(client), sandbox, f"{INPUT_DIR}/{path}", _chunks(spool))

        written_to = await _in_present(open_sandbox, put)
        # Not before: a row without its file in the sandbox would claim an upload that failed.
        row, _ = await Attachment.objects.aupdate_or_create(
            session=session,
            path=path,
            defaults={"digest": digest, "size_bytes": size, "created_by": actor},
        )
        await _follow(open_sandbox, put, written_to)
    finally:
        await asyncio.to_thread(spool.close)
    return row


async def forget(*, session: Session, name: str, open_sandbox: OpenSandbox) -> bool:
    """Remove a staged file from memory and from the sandbox, also if that is replaced meanwhile. Idempotent;
    False, with nothing touched, for a name that is not staged."""
    path = _relative(name)
    removed, _ = await Attachment.objects.filter(session=session, path=path).adelete()
    if not removed:
        return False

    async def remove(client: SandboxClient, sandbox: Sandbox) -> None:
        await remove_file(files_of(client), sandbox, f"{INPUT_DIR}/{path}")

    await _follow(open_sandbox, remove, await _in_present(open_sandbox, remove))
    return True


async def _in_present(open_sandbox: OpenSandbox, work: Work, *, unless: str = "") -> str:
    """Do it in the sandbox that the session has now, which is named; not if that is `unless`."""
    gone = ""
    for _ in range(_MOST_MOVES):
        client, sandbox = await open_sandbox()
        if sandbox.id == unless:
            break
        try:
            await work(client, sandbox)
        except SandboxError as error:
            if not error.gone or sandbox.id == gone:
                raise
            gone = sandbox.id
            continue
        return sandbox.id
    else:
        raise Conflict(
            "The session's sandbox is being replaced again and again; try again in a few seconds.",
            op="stage",
            retry_after_s=5.0,
        )
    return unless


async def _follow(open_sandbox: OpenSandbox, work: Work, done_in: str) -> None:
    """Do it again in a sandbox that took the place of `done_in`: a rebuild may have asked what is staged just
    before the row said so. One that begins from here on finds the row."""
    for _ in range(_MOST_MOVES):
        present = await _in_present(open_sandbox, work, unless=done_in)
        if present == done_in:
            return
        done_in = present


async def restore(*, client: SandboxClient, sandbox: Sandbox, key: SessionKey) -> int:
    """Stage what this sandbox lacks of the session's files. Returns how many. Repeatable: what is there
    is left as it is."""
    rows = [
        row
        async for row in Attachment.objects.filter(
            session__space=key.space, session__session_id=key.session
        )
    ]
    if not rows:
        return 0
    files = files_of(client)
    await ensure_workspace(client, sandbox)
    restored = 0
    for row in rows:
        target = f"{INPUT_DIR}/{row.path}"
        try:
            await files.stat(sandbox, target)
            continue
        except NotFound:
            pass
        try:
            stored = await sync_to_async(default_storage.open)(row.stored_as, "rb")
        except FileNotFoundError:
            log.error("attachment %s of session %s is lost from the storage", row.path, key)
            continue
        try:
            await write_file(files, sandbox, target, _chunks(stored))
        finally:
            await asyncio.to_thread(stored.close)
        restored += 1
    return restored


async def follow_move(*, session: Session, source: str, target: str) -> None:
    """Remember what was staged by the path that it has now: both are absolute paths in the workspace, of a
    file or a folder. What left /workspace/input is no attachment any more."""
    below = posixpath.join(INPUT_DIR, "")
    async for row in _staged_at(session, source):
        moved = target + posixpath.join(INPUT_DIR, row.path).removeprefix(source)
        await Attachment.objects.filter(session=session, path=moved.removeprefix(below)).adelete()
        if moved.startswith(below):
            row.path = moved.removeprefix(below)
            await row.asave(update_fields=["path"])
        else:
            await row.adelete()


async def follow_removal(*, session: Session, path: str) -> None:
    """Forget what was staged at this absolute path or below it."""
    await _staged_at(session, path).adelete()


def _staged_at(session: Session, path: str) -> QuerySet[Attachment]:
    below = posixpath.join(INPUT_DIR, "")
    if not path.startswith(below):
        return Attachment.objects.none()
    name = path.removeprefix(below)
    return Attachment.objects.filter(Q(path=name) | Q(path__startswith=f"{name}/"), session=session)


async def forget_all(*, space_id: str, session_id: str) -> None:
    """Of a session that was destroyed. Idempotent."""
    async for session in Session.objects.filter(space=space_id, session_id=session_id):
        await Attachment.objects.filter(session=session).adelete()
        await sync_to_async(_empty)(session.pk)


def sweep(*, now: datetime | None = None) -> int:
    """Delete stored content that no row names any more. Returns how many files."""
    if not default_storage.exists(_FOLDER):
        return 0
    Attachment.objects.filter(session__state=SessionState.DESTROYED).delete()
    oldest = (now or timezone.now()) - _UNCLAIMED
    deleted = 0
    for session_id in default_storage.listdir(_FOLDER)[0]:
        rows = Attachment.objects.filter(session=session_id)
        needed = set(rows.values_list("digest", flat=True))
        deleted += _empty(session_id, keep=needed, unless_newer_than=oldest)
    return deleted


def _relative(name: str) -> str:
    """A path below /workspace/input from one relative to it."""
    full = workspace_path(posixpath.join(INPUT_DIR, name))
    path = full.removeprefix(f"{INPUT_DIR}/")
    if path == full or len(path) > 500:
        raise InvalidRequest(
            f"“{name[:100]}” is no name for an attachment; use a path below {INPUT_DIR}, of at most "
            "500 characters."
        )
    return path


async def _check_room(session: Session, path: str, size: int) -> None:
    others = (
        await Attachment.objects.filter(session=session)
        .exclude(path=path)
        .aaggregate(count=Count("pk"), size=Sum("size_bytes", default=0))
    )
    if others["count"] >= settings.SKILLYARD_ATTACHMENTS_MAX_COUNT:
        raise InvalidRequest(
            f"The session has {others['count']} attachments, which is the most; remove some first."
        )
    if others["size"] + size > settings.SKILLYARD_ATTACHMENTS_MAX_BYTES:
        most = readable(settings.SKILLYARD_ATTACHMENTS_MAX_BYTES)
        raise InvalidRequest(
            f"The session's attachments may have {most} in all; remove some first."
        )


async def _spool(data: AsyncIterable[bytes], spool: IO[bytes]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    async for chunk in data:
        digest.update(chunk)
        size += len(chunk)
        await asyncio.to_thread(spool.write, chunk)
    return digest.hexdigest(), size


def _store(name: str, spool: IO[bytes]) -> None:
    if default_storage.exists(name):
        if default_storage.size(name) == spool.tell():
            return
        # Left half written by a crash.
        default_storage.delete(name)
    spool.seek(0)
    default_storage.save(name, File(spool))


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield chunk


def _empty(
    session_id: str,
    *,
    keep: set[str] | frozenset[str] = frozenset(),
    unless_newer_than: datetime | None = None,
) -> int:
    folder = f"{_FOLDER}/{session_id}"
    if not default_storage.exists(folder):
        return 0
    deleted = 0
    names = default_storage.listdir(folder)[1]
    for name in names:
        path = f"{folder}/{name}"
        newer = unless_newer_than and default_storage.get_modified_time(path) > unless_newer_than
        if name in keep or newer:
            continue
        default_storage.delete(path)
        deleted += 1
    if deleted == len(names):
        default_storage.delete(folder)
    return deleted
