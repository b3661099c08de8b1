"""How a build ends before its switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxes.errors import SandboxError

__all__ = ["BuildCancelled", "BuildFailed", "ClaimLost", "described"]


class BuildFailed(Exception):
    """The build can't go on. `code` is stable, the text one sentence with the mend. `report` replaces the
    build's report."""

    def __init__(self, code: str, message: str, *, report: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.report = report


class BuildCancelled(Exception):
    """Somebody asked for its end."""


class ClaimLost(Exception):
    """Another worker has taken the build or its space over: stop at once, touch nothing more."""


def described(error: Exception) -> tuple[str, str]:
    """(code, sentence) for people."""
    if isinstance(error, BuildFailed):
        return error.code, str(error)
    if isinstance(error, SandboxError):
        return error.kind, str(error)
    if isinstance(error, TimeoutError):
        return "too_long", "The build took longer than it may; make its steps shorter."
    return "internal", "The build failed for a reason that we did not foresee; try it again."
