"""The files of a session, anywhere under /workspace: look, fetch, bring, name, remove.

What comes out of a sandbox is never shown as a page of ours: text is escaped, a picture is known by its first
bytes and sent in a frame of nothing, and all else is a download.
"""

from __future__ import annotations

import codecs
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.fleet import artifacts, attachments
from console.fleet import sessions as live
from console.fleet.models import Session
from console.fleet.runtime import shared_runtime
from console.fleet.workspace import (
    INPUT_DIR,
    MAX_DEPTH,
    OUTPUT_DIR,
    files_of,
    list_files,
    look,
    make_folder,
    move_entry,
    read_file,
    remove_file,
    workspace_path,
    write_file,
)
from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from console.web.sessions.common import existing, find, note, opened, stored
from console.web.sessions.pictures import picture_type
from sandboxes.errors import InvalidRequest
from sandboxes.types import FileEntry, FileType

SHOWN_BYTES = 256 * 1024
PICTURE_BYTES = 16 * 1024**2
_HEAD_BYTES = 4096


@require_safe
async def show(request: ConsoleRequest, pk: str) -> HttpResponse:
    """A text or a picture on a page, the beginning of it if it is long; what it is, of anything else."""
    row = await find(request, pk, Action.RUN)
    path = workspace_path(request.GET.get("path", ""))
    files, sandbox = await stored(row)
    async with read_file(files, sandbox, path) as (entry, chunks):
        head = await _head(chunks, SHOWN_BYTES)
    picture = picture_type(head)
    context = {
        "session": row,
        "space": row.space,
        "entry": entry,
        "parent": posixpath.dirname(path),
        "is_picture": bool(picture) and entry.size_bytes <= PICTURE_BYTES,
        "text": None if picture else _text(head),
        "is_cut": entry.size_bytes > len(head),
        "shown_bytes": len(head),
    }
    return await sync_to_async(page)(request, "sessions/file.html", context, area="sessions")


@require_safe
async def picture(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """An image, to be shown on our own page."""
    row = await find(request, pk, Action.RUN)
    path = workspace_path(request.GET.get("path", ""))
    _entry, kind, body = await _open(row, path, as_picture=True)
    response = StreamingHttpResponse(body, content_type=kind)
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response.headers["Cache-Control"] = "no-store"
    return _sealed(response)


@require_safe
async def download(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """One file, as an attachment."""
    row = await find(request, pk, Action.RUN)
    entry, _kind, body = await _open(row, workspace_path(request.GET.get("path", "")))
    return _attachment(body, entry.name, "application/octet-stream")


@require_safe
async def download_all(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """A whole folder, /workspace/output if none is named, zipped while it is sent."""
    row = await find(request, pk, Action.RUN)
    folder = workspace_path(request.GET.get("path", OUTPUT_DIR))
    client, sandbox = await existing(row)
    chunks = await artifacts.zip_stream(client=client, sandbox=sandbox, folder=folder)
    name = f"{row.session_id[:60]}-{posixpath.basename(folder)}.zip"
    return _attachment(chunks, name, "application/zip")


@require_POST
async def upload(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Files into a folder. Those in /workspace/input are staged: later sandboxes get them again."""
    row = await find(request, pk, Action.RUN)
    folder = workspace_path(request.POST.get("folder", INPUT_DIR))
    given: list[UploadedFile[Any]] = request.FILES.getlist("files")
    if not given:
        await sync_to_async(messages.warning)(request, _("Choose a file to upload."))
        return _back(pk, folder)
    for file in given:
        await _bring(request, row, posixpath.join(folder, file.name or ""), file)
    names = [file.name for file in given][:50]
    await note(request, row, "stage" if _is_input(folder) else "write", path=folder, files=names)
    text = ngettext(
        "%(count)d file is in %(folder)s.", "%(count)d files are in %(folder)s.", len(given)
    )
    await sync_to_async(messages.success)(request, text % {"count": len(given), "folder": folder})
    return _back(pk, folder)


async def _bring(request: ConsoleRequest, row: Session, path: str, file: UploadedFile[Any]) -> None:
    if _is_input(path):
        await live.stage(
            runtime=shared_runtime(),
            space=row.space,
            session_id=row.session_id,
            name=path.removeprefix(f"{INPUT_DIR}/"),
            data=_chunks(file),
            actor=request.principal.actor,
        )
        return
    session = await opened(request, row)
    await write_file(files_of(session.client), session.sandbox, path, _chunks(file))


@require_POST
async def new_folder(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await find(request, pk, Action.RUN)
    folder = workspace_path(request.POST.get("folder", ""))
    path = posixpath.join(folder, _name(request.POST.get("name", "")))
    session = await opened(request, row)
    await make_folder(files_of(session.client), session.sandbox, path)
    await note(request, row, "make_dir", path=path)
    return _back(pk, path)


@require_http_methods(["GET", "POST"])
async def rename(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Another name, or another place: what is given is taken from the folder that it is in."""
    row = await find(request, pk, Action.RUN)
    path = workspace_path(request.POST.get("path") or request.GET.get("path", ""))
    files, sandbox = await stored(row)
    entry = await look(files, sandbox, path)
    folder = posixpath.dirname(path)
    if request.method == "POST":
        target = workspace_path(posixpath.join(folder, request.POST.get("name", "").strip()))
        await move_entry(files, sandbox, path, target)
        await attachments.follow_move(session=row, source=path, target=target)
        await note(request, row, "move", path=path, target=target)
        text = _("%(old)s is %(new)s now.") % {"old": path, "new": target}
        await sync_to_async(messages.success)(request, text)
        return _back(pk, posixpath.dirname(target))
    context = {"session": row, "space": row.space, "entry": entry, "parent": folder}
    return await sync_to_async(page)(request, "sessions/rename.html", context, area="sessions")


@require_http_methods(["GET", "POST"])
async def remove(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Asks first, with what would go; then removes."""
    row = await find(request, pk, Action.RUN)
    path = workspace_path(request.POST.get("path") or request.GET.get("path", ""))
    files, sandbox = await stored(row)
    entry = await look(files, sandbox, path)
    folder = posixpath.dirname(path)
    if request.method == "POST":
        await remove_file(files, sandbox, path)
        await attachments.follow_removal(session=row, path=path)
        await note(request, row, "remove", path=path)
        await sync_to_async(messages.success)(request, _("%(name)s is removed.") % {"name": path})
        return _back(pk, folder)
    below: list[FileEntry] = []
    if entry.type is FileType.DIRECTORY:
        below = await list_files(files, sandbox, path, depth=MAX_DEPTH)
    context = {
        "session": row,
        "space": row.space,
        "entry": entry,
        "parent": folder,
        "count": len(below),
        "size_bytes": sum(each.size_bytes for each in below if each.type is FileType.FILE),
    }
    return await sync_to_async(page)(request, "sessions/remove.html", context, area="sessions")


@require_POST
async def remove_input(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Remove an attachment, from the sandbox too."""
    row = await find(request, pk, Action.RUN)
    name = request.POST.get("path", "")
    removed = await live.unstage(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        name=name,
        actor=request.principal.actor,
    )
    await note(request, row, "unstage", path=name, removed=removed)
    await sync_to_async(messages.success)(request, _("%(name)s is removed.") % {"name": name})
    return redirect("web:session", pk)


async def _open(
    row: Session, path: str, *, as_picture: bool = False
) -> tuple[FileEntry, str, AsyncGenerator[bytes, None]]:
    """A file, its media type and its content. It is open before the answer begins, so that a missing one is a
    404 and no broken stream."""
    files, sandbox = await stored(row)
    async with AsyncExitStack() as stack:
        entry, chunks = await stack.enter_async_context(read_file(files, sandbox, path))
        head = await _head(chunks, _HEAD_BYTES)
        kind = picture_type(head)
        if as_picture and (kind is None or entry.size_bytes > PICTURE_BYTES):
            raise InvalidRequest(f"“{entry.name}” is no picture that can be shown; download it.")
        content = stack.pop_all()

    async def body() -> AsyncGenerator[bytes, None]:
        async with content:
            if head:
                yield head
            async for chunk in chunks:
                yield chunk

    return entry, kind or "application/octet-stream", body()


async def _head(chunks: AsyncIterator[bytes], size: int) -> bytes:
    """At least `size` bytes, if there are so many."""
    head = b""
    while len(head) < size:
        chunk = await anext(chunks, b"")
        if not chunk:
            break
        head += chunk
    return head


def _text(head: bytes) -> str | None:
    """None for what is no text. A character that the cut went through is left out."""
    if b"\0" in head:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None


def _is_input(path: str) -> bool:
    return path == INPUT_DIR or path.startswith(f"{INPUT_DIR}/")


def _name(text: str) -> str:
    name = text.strip()
    if name in ("", ".", "..") or "/" in name:
        raise InvalidRequest("Give the folder a name of its own, without a slash.")
    return name


def _back(pk: str, folder: str) -> HttpResponse:
    return redirect(reverse("web:session", args=[pk], query={"path": folder}) + "#files")


async def _chunks(file: UploadedFile[Any]) -> AsyncIterator[bytes]:
    for chunk in file.chunks():
        yield chunk


def _attachment(body: AsyncIterator[bytes], name: str, kind: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(body, content_type=kind)
    response.headers["Content-Disposition"] = content_disposition_header(True, name)
    return _sealed(response)


def _sealed(response: StreamingHttpResponse) -> StreamingHttpResponse:
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
