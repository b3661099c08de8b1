"""The part of a sandbox that is the session's own: /workspace, and running a skill's scripts there.

Files are read and written as the session's user, and never through a link: a link may lead anywhere,
and the session's own programs make links. Every function raises only `SandboxError`.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager, suppress

from console.fleet.limits import capped
from sandboxes.client import FileStore, SandboxClient
from sandboxes.errors import InvalidRequest, NotFound, SandboxError, Unsupported
from sandboxes.types import ExecRequest, FileEntry, FileType, Sandbox

__all__ = [
    "INPUT_DIR",
    "OUTPUT_DIR",
    "WORKSPACE",
    "command_argv",
    "ensure_workspace",
    "files_of",
    "list_files",
    "look",
    "make_folder",
    "move_entry",
    "read_file",
    "remove_file",
    "script_argv",
    "workspace_path",
    "write_file",
]

log = logging.getLogger(__name__)

WORKSPACE = "/workspace"
INPUT_DIR = f"{WORKSPACE}/input"
OUTPUT_DIR = f"{WORKSPACE}/output"
_FIXED = (WORKSPACE, INPUT_DIR, OUTPUT_DIR)
MAX_FILE_BYTES = 1024**3
MAX_DEPTH = 32

_BOOTSTRAP_S = 15.0
# A session's programs may have removed the directories, or put links or files in their place. As the
# session's user, never as root: root would follow those links. What can't be used is moved aside.
_BOOTSTRAP = f"""
for d in {INPUT_DIR} {OUTPUT_DIR}; do
  if [ -d "$d" ] && [ ! -L "$d" ] && [ -w "$d" ] && [ -x "$d" ]; then continue; fi
  if [ -L "$d" ]; then rm -f "$d"; elif [ -e "$d" ]; then mv "$d" "$d.aside.$$"; fi
  mkdir -m 775 "$d"
done
"""


def command_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that first sees to the workspace's two directories, then becomes `argv`: in one
    call, by the user that it runs as."""
    return ("/bin/sh", "-c", f'{{ {_BOOTSTRAP} }} >/dev/null 2>&1\nexec "$@"', "sh", *argv)


async def ensure_workspace(client: SandboxClient, sandbox: Sandbox) -> None:
    """See that /workspace/input and /workspace/output exist, are real directories and are writable.

    Idempotent. What can't be mended is logged; the operation that needs it then says what is wrong.
    """
    request = ExecRequest(argv=("/bin/sh", "-c", _BOOTSTRAP), timeout_s=_BOOTSTRAP_S)
    result = await client.run(sandbox, request, max_output_bytes=1000)
    if not result.ok:
        log.warning("the workspace of sandbox %s is not whole: %r", sandbox.id, result.stderr)


def files_of(client: SandboxClient) -> FileStore:
    """The backend's files, or Unsupported with the mend."""
    if client.files is None:
        raise Unsupported(
            "This backend gives no access to files; choose another one for this space."
        )
    return client.files


def workspace_path(path: str) -> str:
    """An absolute path under /workspace from an absolute or relative one. InvalidRequest if it
    leads elsewhere."""
    if "\0" in path:
        raise InvalidRequest("A path can't hold a NUL character.")
    full = posixpath.normpath(posixpath.join(WORKSPACE, path))
    if full != WORKSPACE and not full.startswith(f"{WORKSPACE}/"):
        raise InvalidRequest(
            f"“{path}” is outside {WORKSPACE}; only files below it can be reached."
        )
    return full


async def look(files: FileStore, sandbox: Sandbox, path: str) -> FileEntry:
    """One entry below /workspace; a link is described, not followed. NotFound if it is missing;
    InvalidRequest if the way to it leads through a link."""
    full = workspace_path(path)
    *above, entry = await asyncio.gather(
        *(files.stat(sandbox, part) for part in _way_to(full)), return_exceptions=True
    )
    for parent in above:
        if isinstance(parent, FileEntry) and parent.type is FileType.SYMLINK:
            raise _is_link(parent.path)
        if isinstance(parent, BaseException) and not isinstance(parent, NotFound):
            raise parent
    if isinstance(entry, BaseException):
        raise entry
    return entry


async def list_files(
    files: FileStore, sandbox: Sandbox, path: str, *, depth: int = 1
) -> list[FileEntry]:
    """Entries below a directory of the workspace, `depth` levels down, sorted by path. Links are listed as
    links, and what they lead to is not. NotFound; InvalidRequest for a file or a link."""
    entry = await look(files, sandbox, path)
    if entry.type is FileType.SYMLINK:
        raise _is_link(entry.path)
    if not 1 <= depth <= MAX_DEPTH:
        raise InvalidRequest(f"A listing goes 1 to {MAX_DEPTH} levels deep; ask for fewer.")
    return await files.list(sandbox, workspace_path(path), depth=depth)


@asynccontextmanager
async def read_file(
    files: FileStore, sandbox: Sandbox, path: str
) -> AsyncIterator[tuple[FileEntry, AsyncIterator[bytes]]]:
    """A file of the workspace and its content in chunks, with flat memory. NotFound; InvalidRequest for
    anything but a regular file."""
    entry = await look(files, sandbox, path)
    if entry.type is FileType.SYMLINK:
        raise _is_link(entry.path)
    if entry.type is not FileType.FILE:
        raise InvalidRequest(f"“{path}” is not a file; name a file.")
    async with files.read(sandbox, workspace_path(path)) as chunks:
        yield entry, chunks


async def write_file(
    files: FileStore,
    sandbox: Sandbox,
    path: str,
    data: AsyncIterable[bytes],
    *,
    max_bytes: int = MAX_FILE_BYTES,
) -> FileEntry:
    """Create or replace a file of the workspace, and its missing parents. InvalidRequest where a directory
    or a link is in the way, or past `max_bytes`. A write that breaks off leaves no file there."""
    full = workspace_path(path)
    if full == WORKSPACE:
        raise InvalidRequest("Name the file to write, below /workspace.")
    try:
        existing = await look(files, sandbox, full)
    except NotFound:
        pass
    else:
        if existing.type is FileType.SYMLINK:
            raise _is_link(existing.path)
        if existing.type is not FileType.FILE:
            raise InvalidRequest(f"“{path}” is a folder; choose another name.")
    try:
        await files.write(sandbox, full, capped(data, max_bytes))
    except BaseException:
        # A half of a file looks like a file: better none, even to a caller who left.
        with suppress(SandboxError):
            await files.remove(sandbox, full)
        raise
    return await look(files, sandbox, full)


async def remove_file(files: FileStore, sandbox: Sandbox, path: str) -> None:
    """Remove a file, a link or a whole directory of the workspace. Idempotent."""
    full = workspace_path(path)
    if full in _FIXED:
        raise InvalidRequest(f"{full} itself stays; remove what is in it.")
    try:
        await look(files, sandbox, full)
    except NotFound:
        return
    await files.remove(sandbox, full)


async def make_folder(files: FileStore, sandbox: Sandbox, path: str) -> FileEntry:
    """Make a folder of the workspace and its missing parents. Idempotent. InvalidRequest where a file or a
    link is in the way."""
    full = workspace_path(path)
    try:
        existing = await look(files, sandbox, full)
    except NotFound:
        pass
    else:
        if existing.type is FileType.SYMLINK:
            raise _is_link(existing.path)
    await files.make_dir(sandbox, full)
    return await look(files, sandbox, full)


async def move_entry(files: FileStore, sandbox: Sandbox, source: str, target: str) -> FileEntry:
    """Give a file, a link or a whole folder of the workspace another path; the target's missing parents are
    made. NotFound without a source; InvalidRequest if there is something at the target."""
    source, target = workspace_path(source), workspace_path(target)
    if source in _FIXED:
        raise InvalidRequest(f"{source} itself stays; move what is in it.")
    if f"{target}/".startswith(f"{source}/"):
        raise InvalidRequest("A folder can't be moved into itself; name another place.")
    await look(files, sandbox, source)
    try:
        await look(files, sandbox, target)
    except NotFound:
        await files.move(sandbox, source, target)
        return await look(files, sandbox, target)
    raise InvalidRequest(f"There is a “{target}” already; choose another name, or remove it first.")


def _way_to(full: str) -> list[str]:
    """The path itself and everything above it, from below /workspace."""
    parts = full.removeprefix(WORKSPACE).strip("/").split("/") if full != WORKSPACE else []
    return [posixpath.join(WORKSPACE, *parts[: n + 1]) for n in range(len(parts))] or [WORKSPACE]


def _is_link(path: str) -> SandboxError:
    return InvalidRequest(f"“{path}” is a link, and links are not followed; name the file itself.")


async def script_argv(
    *, files: FileStore, sandbox: Sandbox, skill_path: str, script: str, args: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The command that runs a skill's script: its own venv's Python for .py, node for .js, bash for
    .sh, the file itself otherwise. NotFound if the skill has no such script."""
    full = posixpath.normpath(posixpath.join(skill_path, script))
    if not full.startswith(f"{skill_path}/"):
        raise InvalidRequest(
            f"“{script}” leads out of the skill's folder; name a script inside it."
        )
    try:
        await files.stat(sandbox, full)
    except NotFound:
        raise NotFound(
            f"The skill has no script “{script}” in this session's release; look at its files."
        ) from None
    extension = posixpath.splitext(full)[1].lower()
    if extension == ".py":
        return (await _python(files, sandbox, skill_path), full, *args)
    if extension in (".js", ".mjs", ".cjs"):
        return ("node", full, *args)
    if extension == ".sh":
        return ("bash", full, *args)
    return (full, *args)


async def _python(files: FileStore, sandbox: Sandbox, skill_path: str) -> str:
    own = f"{skill_path}/.venv/bin/python"
    try:
        await files.stat(sandbox, own)
    except NotFound:
        return "python3"
    return own
