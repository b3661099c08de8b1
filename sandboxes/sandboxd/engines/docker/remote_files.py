"""The files of a container of a remote engine, through commands in it.

They run as the container's own root, so no link can lead them out of it. Docker's archive API is not
used: it follows links as the host's root. Needs GNU find and coreutils in the image.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from sandboxes.errors import (
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    Unsupported,
)
from sandboxes.sandboxd.engines.base import FileInfo, FileSystem, ProcessSpec
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.remote_exec import (
    Finished,
    RemoteProcess,
    announced,
    run_inside,
    start,
)
from sandboxes.sandboxd.engines.runc.filesystem.root import normal_path
from sandboxes.types import FileType

__all__ = ["RemoteFileSystem"]

_TYPES = {"f": FileType.FILE, "d": FileType.DIRECTORY, "l": FileType.SYMLINK}
# Type, target's type, size, mode, owner, group, time of change, link's target, path; a NUL each.
_FORMAT = r"%y\0%Y\0%s\0%m\0%u\0%g\0%T@\0%l\0%p\0"
_FIELDS = 9
_KERNEL = ("/proc", "/sys", "/dev")

_ACCOUNT = """
fields=$(awk -F: -v user="$owner" '($1==user || $3==user) && !n++ {print $3":"$4}' /etc/passwd)
[ -n "$fields" ] || { case $owner in *[!0-9]*|'') exit 41;; *) fields=$owner:$owner;; esac; }
make_parents() {
  [ -d "$1" ] && return
  make_parents "$(dirname -- "$1")" || return
  mkdir -m 755 -- "$1" 2>&3 || { [ -d "$1" ]; return; }
  chown -- "$fields" "$1"
}
exec 3>&2
"""
_WRITE = f"""
path=$1 owner=$2 {_ACCOUNT}
[ -d "$path" ] && exit 42
if [ -e "$path" ]; then
  [ -f "$path" ] || exit 43
  new=
else
  make_parents "$(dirname -- "$path")" || exit 1
  new=1
fi
cat > "$path" || exit 1
chown -- "$fields" "$path"
[ -z "$new" ] || chmod 644 -- "$path"
"""
_MAKE = f"""
path=$1 owner=$2 {_ACCOUNT}
[ -d "$path" ] && exit 44
[ -e "$path" ] && exit 43
make_parents "$path"
"""
_MOVE = f"""
source=$1 target=$2 owner=$3 {_ACCOUNT}
[ -e "$source" ] || [ -L "$source" ] || {{ echo "No such file or directory" >&2; exit 1; }}
make_parents "$(dirname -- "$target")" || exit 1
mv -fT -- "$source" "$target"
"""
_CHECK_DIRECTORY = """
[ -e "$1" ] || { echo "No such file or directory" >&2; exit 1; }
[ -d "$1" ] || exit 45
"""
_READ = """
[ -e "$1" ] || { echo "No such file or directory" >&2; exit 1; }
[ -d "$1" ] && exit 42
[ -f "$1" ] || exit 43
exec 0< "$1" || exit 1
echo open >&2
if [ "$3" = all ]; then exec tail -c +"$2"; fi
tail -c +"$2" | head -c "$3"
"""


class RemoteFileSystem(FileSystem):
    def __init__(self, api: Api, container: str) -> None:
        self._api = api
        self._container = container

    async def home(self, user: str) -> str:
        script = """awk -F: -v user="$1" '($1==user || $3==user) && !n++ {print $6}' /etc/passwd"""
        found = (await self._run("/etc/passwd", "sh", "-c", script, "sh", user)).stdout.decode()
        if not found.strip():
            raise InvalidRequest(
                f"The sandbox has no account {user!r}; use one from its /etc/passwd, such as user"
            )
        return found.strip()

    async def stat(self, path: str) -> FileInfo:
        path = normal_path(path)
        (found,) = await self._find(path, "-maxdepth", "0")
        return found

    async def list(self, path: str, *, depth: int) -> list[FileInfo]:
        path = normal_path(path)
        if depth < 1:
            raise InvalidRequest("The depth of a listing must be 1 or more; give 1 for one level")
        top = path.rstrip("/") + "/."
        await self._run(path, "sh", "-c", _CHECK_DIRECTORY, "sh", path)
        found = await self._find(top, "-mindepth", "1", "-maxdepth", str(depth))
        return sorted(found, key=lambda info: info.path.split("/"))

    async def _find(self, path: str, *options: str) -> Sequence[FileInfo]:
        done = await self._run(path, "find", path, *options, "-printf", _FORMAT)
        fields = done.stdout.decode(errors="replace").split("\0")[:-1]
        groups = [fields[at : at + _FIELDS] for at in range(0, len(fields), _FIELDS)]
        return [_info(group) for group in groups]

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        path = normal_path(path)
        _refuse_kernel(path)
        amount = "all" if length is None else str(length)
        argv = ("sh", "-c", _READ, "sh", path, str(offset + 1), amount)
        stream = await self._api.exec(self._container, argv, user="0:0", env={})
        is_open, begun, errors = await announced(stream, b"open\n")
        if not is_open:
            while (code := await stream.exit_code()) is None:  # noqa: ASYNC110 - as in run_inside
                await asyncio.sleep(0.01)
            await stream.aclose()
            raise _failure(path, Finished(code, b"", errors))

        async def content() -> AsyncIterator[bytes]:
            try:
                if begun:
                    yield begun
                while (piece := await stream.read()) is not None:
                    yield piece[1]
            finally:
                await stream.aclose()

        return content()

    async def write(
        self,
        path: str,
        data: AsyncIterable[bytes],
        *,
        owner: str,
        metadata: Mapping[str, str] | None = None,
    ) -> FileInfo:
        path = normal_path(path)
        _refuse_kernel(path)
        if metadata:
            raise Unsupported("A remote Docker can't keep metadata of files; leave it out.")
        argv = ("sh", "-c", _WRITE, "sh", path, owner)
        process = await start(
            self._api, self._container, ProcessSpec(argv=argv, user="0:0", cwd="/", stdin=True), {}
        )
        try:
            await self._feed(process, data)
        except BaseException:
            await process.kill_tree()
            raise
        errors = b"".join([piece async for _, piece in process.output()])
        code = (await process.wait()).code
        if code != 0:
            raise _failure(path, Finished(1 if code is None else code, b"", errors))
        return await self.stat(path)

    async def _feed(self, process: RemoteProcess, data: AsyncIterable[bytes]) -> None:
        try:
            async for chunk in data:
                if chunk:
                    await process.write_stdin(chunk)
            await process.close_stdin()
        except Conflict:
            return  # it has failed: its exit says why

    async def make_dir(self, path: str, *, owner: str) -> FileInfo:
        path = normal_path(path)
        await self._run(path, "sh", "-c", _MAKE, "sh", path, owner)
        return await self.stat(path)

    async def move(self, source: str, destination: str, *, owner: str) -> FileInfo:
        source, destination = normal_path(source), normal_path(destination)
        if (destination + "/").startswith(source + "/") and source != destination:
            raise InvalidRequest(f"{source} can't be moved into itself; name another place")
        if source != destination:
            await self._run(source, "sh", "-c", _MOVE, "sh", source, destination, owner)
        return await self.stat(destination)

    async def remove(self, path: str) -> None:
        path = normal_path(path)
        if path == "/":
            raise InvalidRequest("The root directory itself cannot be changed; name an entry in it")
        _refuse_kernel(path)
        await self._run(path, "rm", "-rf", "--one-file-system", "--", path)

    def watch(
        self, path: str, *, recursive: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, str]]]:
        raise Unsupported("Files at a remote Docker can't be watched; list them instead.")

    async def _run(self, path: str, *argv: str) -> Finished:
        done = await run_inside(self._api, self._container, argv)
        if done.code != 0:
            raise _failure(path, done)
        return done


def _info(fields: list[str]) -> FileInfo:
    kind, target, size, mode, owner, group, changed, link, path = fields
    path = normal_path(path)
    is_link = kind == "l"
    return FileInfo(
        name=posixpath.basename(path) or "/",
        path=path,
        type=_TYPES.get(kind, FileType.OTHER),
        size_bytes=int(size),
        mode=int(mode, 8),
        owner=owner,
        group=group,
        modified_at=datetime.fromtimestamp(float(changed), UTC),
        link_target=link if is_link else None,
        target_type=_TYPES.get(target, FileType.OTHER) if is_link and target not in "NL?" else None,
    )


def _refuse_kernel(path: str) -> None:
    if any(path == top or path.startswith(f"{top}/") for top in _KERNEL):
        if path.startswith("/dev/shm/"):  # noqa: S108 - a place for files like any other
            return
        raise InvalidRequest(
            f"{path} is a file of the kernel; run a command in the sandbox to use it"
        )


def _failure(path: str, done: Finished) -> SandboxError:
    text = done.stderr.decode(errors="replace").strip()
    by_code: dict[int, SandboxError] = {
        41: InvalidRequest("The sandbox has no such account; use one from its /etc/passwd."),
        42: InvalidRequest(f"{path} is a directory; name a file"),
        43: InvalidRequest(f"{path} is no regular file or directory; choose another name"),
        45: InvalidRequest(f"{path} is no directory; name one"),
        44: Conflict(f"{path} exists already; use it as it is"),
    }
    if done.code in by_code:
        return by_code[done.code]
    for words, error in (
        ("No such file", NotFound(f"There is no {path}; create it first")),
        ("No space left", Capacity("The disk of the sandboxes is full; free some space.")),
        ("Not a directory", InvalidRequest(f"Something in {path} is no directory; correct it")),
        ("File exists", Conflict(f"Something is in the way of {path}; remove it first")),
        ("not empty", Conflict(f"{path} is in the way and not empty; remove it first")),
        ("Too many levels", InvalidRequest(f"{path} is a link in a circle; correct it")),
        ("File name too long", InvalidRequest(f"A name in {path[:80]}… is too long; shorten it")),
        ("Is a directory", InvalidRequest(f"{path} is a directory; name a file")),
        ("overwrite", Conflict(f"Something is in the way of {path}; remove it first")),
    ):
        if words in text:
            return error
    return Internal(f"The files of the sandbox could not be used (exit {done.code}).", detail=text)
