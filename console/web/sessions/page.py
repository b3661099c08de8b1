"""The page of one session: how it stands, its terminal, its files, and what happened to it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.utils.translation import gettext as _

from console.fleet.condition import Condition, condition_of
from console.fleet.models import Session
from console.fleet.runtime import shared_runtime
from console.fleet.workspace import INPUT_DIR, OUTPUT_DIR, WORKSPACE, list_files, workspace_path
from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from console.web.sessions.common import stored
from sandboxes.errors import SandboxError
from sandboxes.types import ExecResult, FileEntry, FileType

__all__ = ["Ran", "render"]

PREVIEW_PORTS = ("3000", "8000", "8080")
"""Where web servers usually listen; any other port works by its address."""
SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".sh")
FILES_PER_PAGE = 200
_SORTS = {
    "name": lambda entry: entry.name.casefold(),
    "size": lambda entry: entry.size_bytes,
    "changed": lambda entry: entry.modified_at,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that was run from the page."""

    command: str = ""
    result: ExecResult | None = None
    problem: str = ""

    @property
    def stdout(self) -> str:
        return self.result.stdout.decode(errors="replace") if self.result else ""

    @property
    def stderr(self) -> str:
        return self.result.stderr.decode(errors="replace") if self.result else ""


async def render(
    request: ConsoleRequest, row: Session, ran: Ran | None = None, *, status: int = 200
) -> HttpResponse:
    condition = await condition_of(shared_runtime(), row)
    context = {
        "session": row,
        "space": row.space,
        "condition": condition,
        "ran": ran or Ran(),
        "scripts": await sync_to_async(_scripts)(row),
        "preview_ports": PREVIEW_PORTS,
        "attachments": [file async for file in row.attachments.all()[:100]],
        "history": [event async for event in row.events.all()[:50]],
        "terminal_words": terminal_words(row.space.idle_timeout_s),
        **await _files(request, row, condition),
        **_rights(request, row),
    }
    return await sync_to_async(page)(
        request, "sessions/session.html", context, area="sessions", partial="run", status=status
    )


def _rights(request: ConsoleRequest, row: Session) -> dict[str, bool]:
    where = {"tenant_id": row.space.tenant_id, "space_id": row.space_id}
    return {
        f"may_{action.value}": request.principal.may(action, **where)
        for action in (Action.RUN, Action.OPERATE, Action.POLICY)
    }


def _scripts(session: Session) -> list[tuple[str, str]]:
    """(skill name, script) of everything runnable that the session's release carries."""
    if session.release is None:
        return []
    return [
        (item.version.skill.name, file["path"])
        for item in session.release.items.select_related("version__skill")
        for file in item.version.inspection.get("files", ())
        if file["path"].endswith(SCRIPT_SUFFIXES)
    ]


async def _files(request: ConsoleRequest, row: Session, condition: Condition) -> dict[str, Any]:
    """A folder as it is now. What sleeps is not woken for a look."""
    entries: list[FileEntry] = []
    trouble = ""
    outputs = None
    folder = WORKSPACE
    if condition.is_running:
        try:
            folder = workspace_path(request.GET.get("path", WORKSPACE))
            files, sandbox = await stored(row)
            entries = await list_files(files, sandbox, folder)
            outputs = (
                len(entries)
                if folder == OUTPUT_DIR
                else len(await list_files(files, sandbox, OUTPUT_DIR))
            )
        except SandboxError as error:
            trouble = error.message
    sort, falling = request.GET.get("sort", "name"), request.GET.get("down") == "1"
    key = _SORTS.get(sort, _SORTS["name"])
    entries.sort(key=_SORTS["name"])
    entries.sort(key=key, reverse=falling)
    entries.sort(key=lambda entry: entry.type is not FileType.DIRECTORY)
    return {
        "folder": folder,
        "crumbs": _crumbs(folder),
        "entries": Paginator(entries, FILES_PER_PAGE).get_page(request.GET.get("page")),
        "sort": sort if sort in _SORTS else "name",
        "falling": falling,
        "files_trouble": trouble,
        "in_input": folder == INPUT_DIR or folder.startswith(f"{INPUT_DIR}/"),
        "outputs": outputs,
        "fixed": (INPUT_DIR, OUTPUT_DIR),
        "attachment_max_bytes": settings.SKILLYARD_ATTACHMENT_MAX_BYTES,
    }


def _crumbs(folder: str) -> list[tuple[str, str]]:
    """(name, path) of the folder and all above it, from /workspace down."""
    found = [(posixpath.basename(folder), folder)]
    while found[0][1] != WORKSPACE:
        parent = posixpath.dirname(found[0][1])
        found.insert(0, (posixpath.basename(parent), parent))
    return found


def terminal_words(idle_timeout_s: int) -> dict[str, str]:
    """What the terminal tells its person, in their language. {code} and {left} are filled in there."""
    minutes = max(round(idle_timeout_s / 60), 1)
    return {
        "connecting": _("Connecting…"),
        "unloaded": _("The terminal could not be loaded; try again."),
        "starting": _("Opening the session's sandbox…"),
        "open": _("Connected to a new shell."),
        "same": _("Connected to your shell, which ran on."),
        "lost": _("The connection was lost; trying again…"),
        "unreachable": _(
            "The console can't be reached, or you are signed out. Press Enter to try again, or load the page "
            "anew."
        ),
        "idle_soon": _(
            "Nothing was typed for a while: in {left} s the terminal lets go. Press any key to stay."
        ),
        "too_much": _("That was too much at once and was left out; upload it as a file instead."),
        "exit": _("The shell ended with exit code {code}. Press Enter for a new one."),
        "exit_unknown": _("The shell has ended. Press Enter for a new one."),
        "over": _("The shell had ended meanwhile. Press Enter for a new one."),
        "idle": _(
            "Nothing was typed for %(minutes)d min, so the terminal let go and the session may pause. Press "
            "Enter to come back."
        )
        % {"minutes": minutes},
        "paused": _("The session is paused. Press Enter to wake it where it was."),
        "gone": _(
            "The session's sandbox is gone: destroyed, rebuilt or stopped. Press Enter to open a terminal in "
            "the present one."
        ),
        "denied": _("You are signed out, or may no longer run things here. Load the page anew."),
        "error": _("Press Enter to try again."),
        "broken": _("Press Enter to try again."),
    }
