"""`/files`: contents of files, up and down, streamed with flat memory."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import posixpath
import zlib
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.sandboxd.engines.base import Engine, FileInfo, FileSystem
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.routes.conditions import Conditions, accepted_encoding
from sandboxes.sandboxd.routes.kernelfiles import KERNEL_FILES, read_kernel_file
from sandboxes.sandboxd.routes.multipart import parts
from sandboxes.sandboxd.routes.paths import resolve_path
from sandboxes.sandboxd.routes.rpc import DEFAULT_USER
from sandboxes.types import FileType
from sandboxes.wire.messages import UploadedFile
from sandboxes.wire.server.asgi import body_chunks, drain
from sandboxes.wire.server.bodies import Fields
from sandboxes.wire.server.problems import error_response, json_error

__all__ = ["FileRoutes"]

_INFLATE_BYTES = 512 * 1024
_METADATA_PREFIX = "x-metadata-"
_MAX_LINKS = 40
_GZIP = 31
"""zlib's window bits for a gzip wrapper."""


class FileRoutes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def download(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            files = self._engine.files(live.id)
            response: Response | None
            user, path = await _target(files, QueryParams(scope["query_string"]))
            if path.startswith(KERNEL_FILES):
                response = await read_kernel_file(self._engine, live.id, path, user)
            else:
                info = await _followed(files, path)
                response = await _respond(files, info, headers, send)
        except UnknownUser as error:
            response = json_error(401, str(error))
        except SandboxError as error:
            response = error_response(error, disk=True)
        if response is not None:
            await response(scope, receive, send)

    async def upload(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        body = body_chunks(receive)
        try:
            written = await self._upload(live, headers, QueryParams(scope["query_string"]), body)
            response: Response = JSONResponse(written)
        except ClientDisconnect:
            return
        except UnknownUser as error:
            response = json_error(401, str(error))
        except SandboxError as error:
            response = error_response(error, disk=True)
        await _drained(body)
        await response(scope, receive, send)

    async def compose(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        """Join files into one, in order, and remove them."""
        try:
            response: Response = JSONResponse(await self._compose(live, body_chunks(receive)))
        except ClientDisconnect:
            return
        except UnknownUser as error:
            response = json_error(401, str(error))
        except SandboxError as error:
            response = error_response(error, disk=True)
        await response(scope, receive, send)

    async def _compose(self, live: LiveSandbox, body: AsyncIterator[bytes]) -> UploadedFile:
        try:
            fields = Fields(json.loads(b"".join([chunk async for chunk in body])))
        except (ValueError, TypeError):
            raise InvalidRequest("The request body must be a JSON object") from None
        files = self._engine.files(live.id)
        user = fields.text("username") or DEFAULT_USER
        await _check_user(files, user)
        sources = [await resolve_path(files, p, user) for p in fields.texts("source_paths")]
        target = await resolve_path(files, fields.required_text("destination"), user)
        if not sources or target in sources:
            raise InvalidRequest("source_paths must name files other than the destination")
        for source in sources:
            await _followed(files, source)

        async def joined() -> AsyncIterator[bytes]:
            for source in sources:
                async for chunk in await files.read(source):
                    yield chunk

        uploaded = await _write(files, target, joined(), user, {})
        for source in sources:
            await files.remove(source)
        return uploaded

    async def _upload(
        self, live: LiveSandbox, headers: Headers, query: QueryParams, body: AsyncIterator[bytes]
    ) -> list[UploadedFile]:
        files = self._engine.files(live.id)
        user = query.get("username") or DEFAULT_USER
        await _check_user(files, user)
        metadata = _metadata(headers)
        content_type = headers.get("content-type", "")
        media_type = content_type.partition(";")[0].strip().lower()
        path = query.get("path")
        data = _decoded(body, headers.get("content-encoding", ""))
        if media_type == "application/octet-stream":
            if not path:
                raise InvalidRequest("path is required in the query of a raw upload")
            target = await resolve_path(files, path, user)
            return [await _write(files, target, data, user, metadata)]
        if media_type.startswith("multipart/"):
            return await _write_parts(files, content_type, data, path, user, metadata)
        raise InvalidRequest(
            f"Content-Type “{media_type}” is not supported; "
            "use multipart/form-data or application/octet-stream"
        )


class UnknownUser(Exception):
    """The account that a request selects does not exist in the sandbox."""


async def _write_parts(
    files: FileSystem,
    content_type: str,
    data: AsyncIterator[bytes],
    path: str | None,
    user: str,
    metadata: Mapping[str, str],
) -> list[UploadedFile]:
    written: list[UploadedFile] = []
    async for part in parts(content_type, data):
        if part.name != "file":
            await drain(part.data)
            continue
        name = path or part.filename
        if not name:
            raise InvalidRequest("A file part has no filename, and the query no path")
        target = await resolve_path(files, name, user)
        if any(target == done["path"] for done in written):
            raise InvalidRequest(
                f"Two files of one upload have the path {target}; only the first was written"
            )
        written.append(await _write(files, target, part.data, user, metadata))
    if not written:
        raise InvalidRequest("The upload holds no part named “file”")
    return written


async def _write(
    files: FileSystem,
    path: str,
    data: AsyncIterator[bytes],
    user: str,
    metadata: Mapping[str, str],
) -> UploadedFile:
    info = await files.write(path, data, owner=user, metadata=metadata)
    uploaded: UploadedFile = {"name": posixpath.basename(path), "path": path, "type": "file"}
    if info.metadata:
        uploaded["metadata"] = dict(info.metadata)
    return uploaded


def _decoded(body: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _gunzip(body)
    raise InvalidRequest(f"Content-Encoding “{encoding}” is not supported; use gzip or none")


async def _gunzip(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """In bounded steps: a small upload may unpack to a very large file, but never in memory."""
    inflater = zlib.decompressobj(_GZIP)
    async for chunk in body:
        data = chunk
        while data:
            try:
                inflated = inflater.decompress(data, _INFLATE_BYTES)
            except zlib.error:
                raise InvalidRequest("The body is not valid gzip") from None
            if inflated:
                yield inflated
            data = inflater.unconsumed_tail
            if inflater.eof and inflater.unused_data:
                data = inflater.unused_data
                inflater = zlib.decompressobj(_GZIP)
    if not inflater.eof:
        raise InvalidRequest("The gzip body is cut short")


async def _respond(
    files: FileSystem, info: FileInfo, request: Headers, send: Send
) -> Response | None:
    """The whole answer, sent; or one without contents for the caller to send."""
    conditions = Conditions(request, modified_at=info.modified_at, size_bytes=info.size_bytes)
    encoding = accepted_encoding(request, identity_only=conditions.any)
    if encoding is None:
        return json_error(
            406, "None of the accepted encodings can be given; accept gzip or identity"
        )
    name = quote(info.name)
    headers = {
        "vary": "Accept-Encoding",
        "content-disposition": f"inline; filename*=UTF-8''{name}",
        "content-type": mimetypes.guess_type(info.name)[0] or "application/octet-stream",
        "last-modified": conditions.last_modified,
        "etag": conditions.etag,
        "accept-ranges": "bytes",
    }
    if (status := conditions.failed_status()) is not None:
        return Response(status_code=status, headers=headers)
    wanted = conditions.byte_range()
    if wanted == "unsatisfiable":
        headers["content-range"] = f"bytes */{info.size_bytes}"
        return json_error(416, "The range lies outside of the file", headers)
    status, offset, length = 200, 0, info.size_bytes
    if isinstance(wanted, range):
        status, offset, length = 206, wanted.start, len(wanted)
        headers["content-range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{info.size_bytes}"
    # Files of the kernel report no size: read them to their end.
    sized = info.size_bytes > 0
    chunks = await files.read(info.path, offset=offset, length=length if sized else None)
    if encoding == "gzip":
        headers["content-encoding"] = "gzip"
        headers["etag"] = f"W/{conditions.etag}"
        chunks = _gzipped(chunks)
    elif sized:
        headers["content-length"] = str(length)
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    async for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return None


async def _gzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """At the fastest level, in threads: zlib lets the interpreter go on meanwhile."""
    deflater = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for chunk in chunks:
        if deflated := await asyncio.to_thread(deflater.compress, chunk):
            yield deflated
    yield deflater.flush()


async def _target(files: FileSystem, query: QueryParams) -> tuple[str, str]:
    user = query.get("username") or DEFAULT_USER
    await _check_user(files, user)
    return user, await resolve_path(files, query.get("path", ""), user)


async def _check_user(files: FileSystem, user: str) -> None:
    try:
        await files.home(user)
    except (InvalidRequest, NotFound) as error:
        raise UnknownUser(error.message) from None


async def _followed(files: FileSystem, path: str) -> FileInfo:
    """What a path leads to. InvalidRequest for a directory or a loop of links."""
    target = path
    for _ in range(_MAX_LINKS):
        info = await files.stat(target)
        if info.type is FileType.DIRECTORY:
            raise InvalidRequest(f"path '{path}' is a directory")
        if info.type is not FileType.SYMLINK or not info.link_target:
            return info
        target = posixpath.normpath(posixpath.join(posixpath.dirname(target), info.link_target))
    raise InvalidRequest(f"path '{path}' leads through too many links")


def _metadata(headers: Headers) -> dict[str, str]:
    return {
        name[len(_METADATA_PREFIX) :]: value
        for name, value in headers.items()
        if name.startswith(_METADATA_PREFIX) and len(name) > len(_METADATA_PREFIX)
    }


async def _drained(body: AsyncIterator[bytes]) -> None:
    try:
        await drain(body)
    except ClientDisconnect:
        return
