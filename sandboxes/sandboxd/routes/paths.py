"""Paths as clients write them: absolute, relative to the user's home, or from `~`."""

from __future__ import annotations

import posixpath

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.engines.base import FileSystem

__all__ = ["resolve_path"]


async def resolve_path(files: FileSystem, path: str, user: str) -> str:
    """Absolute and normal. Links are the file system's affair. InvalidRequest for an unknown user
    or a path that no file can have."""
    if "\0" in path:
        raise InvalidRequest("A path holds no NUL character")
    if path.startswith("/"):
        return posixpath.normpath("/" + path.lstrip("/"))
    home = await files.home(user)
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    elif path.startswith("~"):
        raise InvalidRequest(f"Path “{path}” names another user's home; give it in full")
    return posixpath.normpath(posixpath.join(home, path))
