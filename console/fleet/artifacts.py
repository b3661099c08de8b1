"""What a session made: the tree under /workspace/output, listed and downloaded.

Links are listed as links. A download holds regular files only: nothing that a link leads to.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from console.fleet.limits import readable
from console.fleet.workspace import (
    MAX_DEPTH,
    OUTPUT_DIR,
    ensure_workspace,
    files_of,
    list_files,
    look,
    read_file,
)
from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.types import FileEntry, FileType, Sandbox

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "tree", "zip_stream"]

log = logging.getLogger(__name__)

MAX_ENTRIES = 10_000
MAX_BYTES = 4 * 1024**3


async def tree(
    *, client: SandboxClient, sandbox: Sandbox, folder: str = OUTPUT_DIR
) -> list[FileEntry]:
    """Everything below the folder, sorted by path. InvalidRequest past MAX_ENTRIES."""
    await ensure_workspace(client, sandbox)
    entries = await list_files(files_of(client), sandbox, folder, depth=MAX_DEPTH)
    if len(entries) > MAX_ENTRIES:
        raise InvalidRequest(
            f"{folder} holds {len(entries)} entries, more than {MAX_ENTRIES}; pack them into one file "
            "in the session, and download that."
        )
    return entries


async def zip_stream(
    *, client: SandboxClient, sandbox: Sandbox, folder: str = OUTPUT_DIR
) -> AsyncIterator[bytes]:
    """The folder's tree as a zip archive, made while it is sent: memory stays flat whatever it holds.

    Awaited, it has listed the tree and raises what is wrong with it. A file that vanishes before its turn
    is left out; one that breaks off breaks the archive, so that nobody takes it for whole.
    InvalidRequest past MAX_ENTRIES or MAX_BYTES.
    """
    entries = await tree(client=client, sandbox=sandbox, folder=folder)
    size = sum(entry.size_bytes for entry in entries if entry.type is FileType.FILE)
    if size > MAX_BYTES:
        raise InvalidRequest(
            f"{folder} holds {readable(size)}, more than {readable(MAX_BYTES)}; download its files "
            "one by one."
        )
    return _zip(client, sandbox, folder, entries)


async def _zip(
    client: SandboxClient, sandbox: Sandbox, folder: str, entries: list[FileEntry]
) -> AsyncIterator[bytes]:
    files = files_of(client)
    sink = _Sink()
    archive = zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1)  # type: ignore[call-overload]
    for entry in entries:
        info = _info(entry, folder)
        if entry.type is FileType.DIRECTORY:
            archive.writestr(info, b"")
        elif entry.type is FileType.FILE:
            async with AsyncExitStack() as stack:
                try:
                    # Looked at again: it may have become a link since the listing.
                    opened = await stack.enter_async_context(read_file(files, sandbox, entry.path))
                except (NotFound, InvalidRequest) as error:
                    log.info("%s is left out of the archive: %s", entry.path, error)
                    await look(files, sandbox, folder)  # unless the whole sandbox is gone
                    continue
                with archive.open(info, "w", force_zip64=True) as member:
                    async for chunk in opened[1]:
                        await asyncio.to_thread(member.write, chunk)
                        yield sink.take()
        yield sink.take()
    archive.close()
    yield sink.take()


def _info(entry: FileEntry, folder: str) -> zipfile.ZipInfo:
    name = posixpath.relpath(entry.path, folder)
    moment = entry.modified_at.astimezone(UTC)
    # The format knows no year before 1980.
    moment = max(moment, datetime(1980, 1, 1, tzinfo=UTC))
    is_dir = entry.type is FileType.DIRECTORY
    info = zipfile.ZipInfo(name + "/" if is_dir else name, moment.timetuple()[:6])
    info.compress_type = zipfile.ZIP_STORED if is_dir else zipfile.ZIP_DEFLATED
    info.external_attr = (0o40755 << 16) | 0x10 if is_dir else (0o100000 | entry.mode & 0o777) << 16
    return info


class _Sink:
    """A file that can't seek, so that the archive is written front to back; emptied as it fills."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
