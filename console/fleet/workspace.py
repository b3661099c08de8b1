"""The part of a sandbox that is the session's own: /workspace, and running a skill's scripts there."""

from __future__ import annotations

import posixpath

from sandboxes.client import FileStore
from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.types import Sandbox

__all__ = ["INPUT_DIR", "OUTPUT_DIR", "WORKSPACE", "script_argv", "workspace_path"]

WORKSPACE = "/workspace"
INPUT_DIR = f"{WORKSPACE}/input"
OUTPUT_DIR = f"{WORKSPACE}/output"


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
