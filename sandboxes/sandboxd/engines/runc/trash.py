"""Folders on their way out: gone from their place at once, freed in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from pathlib import Path

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.engines.runc.commands import command

__all__ = ["Trash"]

_log = logging.getLogger(__name__)


class Trash:
    """`root` must lie on the same file system as what is thrown away."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what an earlier run left."""
        self._empty_later()

    def take(self, path: Path) -> None:
        """Idempotent. Nothing may be mounted below `path`."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(self.root / f"{path.name}-{secrets.token_hex(4)}")
            self._empty_later()

    async def emptied(self) -> None:
        """Returns when everything taken so far is gone."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """The next start empties the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _empty_later(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._empty())

    async def _empty(self) -> None:
        # New ones may come while we are at it.
        while found := list(self.root.iterdir()):
            try:
                await command("rm", "-rf", "--one-file-system", "--", *found)
            except SandboxError as error:
                _log.error("the trash could not be emptied: %s (%s)", error, error.detail)
                return
