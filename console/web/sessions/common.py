"""What the views of one session share: its row, its sandbox, and a line in the audit log."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import Http404

from console.audit.services import record
from console.fleet import sessions as live
from console.fleet.models import Session
from console.fleet.runtime import shared_runtime
from console.fleet.workspace import files_of
from console.tenants.access import Action
from console.web.requests import ConsoleRequest
from sandboxes.client import FileStore, SandboxClient
from sandboxes.errors import NotFound
from sandboxes.types import Sandbox

__all__ = ["existing", "find", "note", "opened", "stored"]


async def find(request: ConsoleRequest, pk: str, action: Action) -> Session:
    """Http404, or PermissionDenied, unless this is allowed there."""
    return await sync_to_async(_find)(request, pk, action)


def _find(request: ConsoleRequest, pk: str, action: Action) -> Session:
    rows = Session.objects.select_related(
        "space__backend",
        "space__current_release",
        "space__candidate_release",
        "backend",
        "release",
        "policy",
    )
    session = rows.filter(pk=pk).first()
    if session is None:
        raise Http404
    request.principal.space(session.space_id, action)
    return session


async def opened(request: ConsoleRequest, row: Session) -> live.LiveSession:
    """The session with a sandbox that answers, made or woken if need be."""
    return await live.resolve(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        actor=request.principal.actor,
    )


async def existing(row: Session) -> tuple[SandboxClient, Sandbox]:
    """The sandbox that it has, woken if it sleeps. NotFound rather than make one."""
    client = await shared_runtime().client(row.space.backend)
    sandbox = await shared_runtime().sessions.lookup(
        key=live.session_key(row.space, row.session_id),
        client=client,
        backend=row.space.backend_id,
    )
    if sandbox is None:
        raise NotFound("The session has no sandbox now; run something and it gets a new one.")
    return client, sandbox


async def stored(row: Session) -> tuple[FileStore, Sandbox]:
    """The files of `existing`."""
    client, sandbox = await existing(row)
    return files_of(client), sandbox


async def note(
    request: ConsoleRequest, row: Session, action: str, *, used: bool = True, **details: object
) -> None:
    """What was done to the session, in the audit log. `used`: for lists that are sorted by use."""
    await sync_to_async(record)(
        actor=request.principal.actor,
        action=f"session.{action}",
        target=row.session_id,
        tenant_id=row.space.tenant_id,
        space_id=row.space_id,
        details=details,
    )
    if used:
        await live.touch(space_id=row.space_id, session_id=row.session_id)
