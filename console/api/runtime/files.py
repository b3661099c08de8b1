"""Files of a session: streams both ways, folders, what people hand in and what skills made."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import IO, Any, cast

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header

from console.api.multipart import parse_files
from console.api.runtime.base import NO_SANDBOX, SessionView
from console.api.runtime.serializers import (
    FileEntrySerializer,
    MakeDirSerializer,
    OutputsSerializer,
    StagedSerializer,
)
from console.api.schema import OCTETS, Media, operation, parameter
from console.api.views import answer
from console.fleet import sessions as live
from console.fleet.artifacts import tree, zip_stream
from console.fleet.models import Attachment
from console.fleet.workspace import (
    INPUT_DIR,
    MAX_DEPTH,
    OUTPUT_DIR,
    list_files,
    look,
    read_file,
    remove_file,
    workspace_path,
    write_file,
)
from console.tenants.access import Action
from sandboxes.client import FileStore
from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.types import FileEntry, FileType, Sandbox

TAG = "files"
_WHERE = "Relative to /workspace, or absolute below it. Links are never followed."
PATH = parameter("path", description=_WHERE)
PATH_NEEDED = parameter("path", description=_WHERE, required=True)


def entry_json(entry: FileEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": entry.path,
        "type": entry.type.value,
        "size_bytes": entry.size_bytes,
        "mode": f"{entry.mode & 0o7777:04o}",
        "owner": entry.owner,
        "modified_at": entry.modified_at,
        "link_target": entry.link_target,
    }


async def download(store: FileStore, sandbox: Sandbox, path: str) -> StreamingHttpResponse:
    """One file as an attachment, with flat memory. It is opened before the answer begins, so that a
    missing file is a 404 and no broken stream."""
    async with AsyncExitStack() as stack:
        entry, chunks = await stack.enter_async_context(read_file(store, sandbox, path))
        opened = stack.pop_all()

    async def body() -> AsyncGenerator[bytes, None]:
        async with opened:
            async for chunk in chunks:
                yield chunk

    response = StreamingHttpResponse(body(), content_type=OCTETS)
    response.headers["X-File-Size"] = str(entry.size_bytes)
    response.headers["Content-Disposition"] = content_disposition_header(True, entry.name)
    return response


class Files(SessionView):
    needs = {"GET": Action.RUN, "PUT": Action.RUN, "DELETE": Action.RUN}
    streams = frozenset({"put"})

    @operation(
        "files_read",
        "Read a file",
        tag=TAG,
        response=Media(OCTETS),
        errors=(409, 502, 504),
        parameters=[PATH_NEEDED],
        description="Never makes a sandbox: without one it is a 404.",
    )
    async def get(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        path = workspace_path(_path(request))
        return await download(*await self.existing(), path)

    @operation(
        "files_write",
        "Create or replace a file",
        tag=TAG,
        request={OCTETS: bytes},
        response=FileEntrySerializer,
        errors=(409, 502, 504),
        parameters=[PATH_NEEDED],
        description="The body is the content. Missing folders are made. Makes a sandbox if need be.",
    )
    async def put(self, request: HttpRequest) -> HttpResponse:
        path = workspace_path(_path(request))
        store, sandbox = await self.stored()
        limit = settings.API_MAX_UPLOAD_BYTES
        async with aclosing(self.incoming.chunks(limit)) as chunks:
            entry = await write_file(store, sandbox, path, chunks, max_bytes=limit)
        await self.note("session.write", used=True, path=path, size_bytes=entry.size_bytes)
        return answer(entry_json(entry))

    @operation(
        "files_remove",
        "Remove a file or a whole folder",
        tag=TAG,
        status=204,
        errors=(409, 502, 504),
        parameters=[PATH_NEEDED],
        description="Idempotent: a missing path is success. Never makes a sandbox.",
    )
    async def delete(self, request: HttpRequest) -> HttpResponse:
        path = workspace_path(_path(request))
        store, sandbox = await self.existing()
        await remove_file(store, sandbox, path)
        await self.note("session.remove", used=True, path=path)
        return HttpResponse(status=204)


class Folder(SessionView):
    needs = {"GET": Action.RUN, "POST": Action.RUN}

    @operation(
        "files_list",
        "What a folder holds",
        tag=TAG,
        response=OutputsSerializer,
        errors=(409, 502, 504),
        parameters=[PATH, parameter("depth", int, f"1 to {MAX_DEPTH}; 1 if not given.")],
        description="Never makes a sandbox: without one it is a 404.",
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        path = workspace_path(request.GET.get("path", ""))
        store, sandbox = await self.existing()
        return answer(_tree(await list_files(store, sandbox, path, depth=_depth(request))))

    @operation(
        "files_make_folder",
        "Make a folder, with those above it",
        tag=TAG,
        request=MakeDirSerializer,
        response=FileEntrySerializer,
        errors=(409, 502, 504),
        description="Idempotent. Makes a sandbox if need be.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        path = workspace_path(self.valid(MakeDirSerializer)["path"])
        store, sandbox = await self.stored()
        await store.make_dir(sandbox, path)
        await self.note("session.make_dir", used=True, path=path)
        return answer(entry_json(await look(store, sandbox, path)))


class Stat(SessionView):
    needs = {"GET": Action.RUN}

    @operation(
        "files_stat",
        "One entry; a link is not followed",
        tag=TAG,
        response=FileEntrySerializer,
        errors=(409, 502, 504),
        parameters=[PATH_NEEDED],
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        path = workspace_path(_path(request))
        store, sandbox = await self.existing()
        return answer(entry_json(await look(store, sandbox, path)))


class Inputs(SessionView):
    needs = {"GET": Action.RUN, "POST": Action.RUN, "DELETE": Action.RUN}
    streams = frozenset({"post"})

    @operation(
        "inputs_list",
        "The files that were handed in",
        tag=TAG,
        response=StagedSerializer,
        listed=True,
        description="As they are remembered for the next sandbox. Never makes one.",
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        rows = Attachment.objects.filter(
            session__space=self.space, session__session_id=self.session_id
        )
        return answer([_staged(row) async for row in rows])

    @operation(
        "inputs_upload",
        "Hand in files: they lie in /workspace/input, also after a rebuild",
        tag=TAG,
        request={
            "multipart/form-data": {
                "type": "object",
                "properties": {
                    "files": {"type": "array", "items": {"type": "string", "format": "binary"}}
                },
                "required": ["files"],
            }
        },
        response=StagedSerializer,
        listed=True,
        errors=(409, 502, 504),
        description="Replaces files of the same name. Makes a sandbox if need be.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        async with parse_files(request, self.incoming, settings.API_MAX_UPLOAD_BYTES) as form:
            files: list[UploadedFile[Any]] = form.files.getlist("files")
            if not files:
                raise InvalidRequest("Send at least one file, in the form's field “files”.")
            staged = []
            for file in files:
                kept = await live.stage(
                    runtime=self.runtime,
                    space=self.space,
                    session_id=self.session_id,
                    name=str(file.name),
                    data=_chunks(file),
                    actor=self.actor,
                )
                staged.append(_staged(kept))
        await self.note("session.stage", used=True, files=[item["path"] for item in staged][:50])
        return answer(staged)

    @operation(
        "inputs_remove",
        "Take back a file that was handed in",
        tag=TAG,
        status=204,
        errors=(409, 502, 504),
        parameters=[parameter("path", description=f"Relative to {INPUT_DIR}.", required=True)],
        description="It is removed from the sandbox too, and comes back in no later one. Idempotent.",
    )
    async def delete(self, request: HttpRequest) -> HttpResponse:
        path = _path(request).removeprefix(f"{INPUT_DIR}/")
        removed = await live.unstage(
            runtime=self.runtime,
            space=self.space,
            session_id=self.session_id,
            name=path,
            actor=self.actor,
        )
        await self.note("session.unstage", used=removed, path=path, removed=removed)
        return HttpResponse(status=204)


class Outputs(SessionView):
    needs = {"GET": Action.RUN}

    @operation(
        "outputs_list",
        "What skills made: the tree below /workspace/output",
        tag=TAG,
        response=OutputsSerializer,
        errors=(409, 502, 504),
        description="Never makes a sandbox; without one it is empty.",
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        found = await self.lookup()
        if found is None:
            return answer(_tree([]))
        return answer(_tree(await tree(client=found[0], sandbox=found[1])))


class OutputFile(SessionView):
    needs = {"GET": Action.RUN}

    @operation(
        "outputs_read",
        "One file of what skills made",
        tag=TAG,
        response=Media(OCTETS),
        errors=(409, 502, 504),
        parameters=[parameter("path", description="Relative to /workspace/output.", required=True)],
    )
    async def get(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        path = posixpath.normpath(posixpath.join(OUTPUT_DIR, _path(request)))
        if not path.startswith(f"{OUTPUT_DIR}/"):
            raise InvalidRequest(f"That path is outside {OUTPUT_DIR}; use files for others.")
        return await download(*await self.existing(), path)


class OutputArchive(SessionView):
    needs = {"GET": Action.RUN}

    @operation(
        "outputs_archive",
        "All of what skills made, as one zip",
        tag=TAG,
        response=Media("application/zip"),
        errors=(409, 502, 504),
        description="Streamed while it is packed. Links are left out, never followed.",
    )
    async def get(self, request: HttpRequest) -> StreamingHttpResponse:
        found = await self.lookup()
        if found is None:
            raise NotFound(NO_SANDBOX)
        packed = await zip_stream(client=found[0], sandbox=found[1])
        response = StreamingHttpResponse(packed, content_type="application/zip")
        response.headers["Content-Disposition"] = 'attachment; filename="output.zip"'
        return response


def _staged(row: Attachment) -> dict[str, Any]:
    return {"path": f"{INPUT_DIR}/{row.path}", "size_bytes": row.size_bytes}


def _path(request: HttpRequest) -> str:
    path = request.GET.get("path", "")
    if not path.strip():
        raise InvalidRequest("Say which file: ?path=… relative to /workspace.")
    return path


def _depth(request: HttpRequest) -> int:
    text = request.GET.get("depth", "1")
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MAX_DEPTH:
        return int(text)
    raise InvalidRequest(f"depth takes a number from 1 to {MAX_DEPTH}.")


def _tree(entries: list[FileEntry]) -> dict[str, Any]:
    return {
        "entries": [entry_json(entry) for entry in entries],
        "total_bytes": sum(e.size_bytes for e in entries if e.type is FileType.FILE),
    }


async def _chunks(file: UploadedFile[Any]) -> AsyncIterator[bytes]:
    source = cast("IO[bytes]", file.file)
    source.seek(0)
    while chunk := await asyncio.to_thread(source.read, 256 * 1024):
        yield chunk
