"""The session of a conversation, as the routes below it see it."""

from __future__ import annotations

from typing import Any

from django.http import Http404

from console.api import limits
from console.api.journal import journal
from console.api.views import SpaceView
from console.audit.services import Line
from console.fleet import sessions as live
from console.fleet.models import Session
from console.fleet.runtime import Runtime, shared_runtime
from console.fleet.workspace import files_of
from console.tenants.access import Action
from sandboxes.client import FileStore, SandboxClient
from sandboxes.errors import NotFound
from sandboxes.sessions import SessionKey
from sandboxes.types import DEFAULT_USER, Sandbox

__all__ = ["SessionView"]

NO_SANDBOX = "The session has no sandbox now; resolve it or run something, and it gets one."


class SessionView(SpaceView):
    """Of one session, in the path as `session`: the platform's own id, URL-encoded."""

    session_id: str
    key: SessionKey

    async def aenter(self, ids: dict[str, Any]) -> None:
        await super().aenter(ids)
        self.session_id = ids.pop("session")
        self.key = live.session_key(self.space, self.session_id)

    async def row(self) -> Session:
        """What people see of it, with its backend and space; Http404 if nobody ever used it."""
        rows = Session.objects.select_related("backend", "space__backend")
        row = await rows.filter(space=self.space, session_id=self.session_id).afirst()
        if row is None:
            raise Http404
        return row

    @property
    def runtime(self) -> Runtime:
        return shared_runtime()

    async def client(self) -> SandboxClient:
        return await self.runtime.client(self.space.backend)

    async def resolve(self, *, wait_s: float = 30.0) -> live.LiveSession:
        """The session's sandbox, made, claimed or woken as needed."""
        return await live.resolve(
            runtime=self.runtime,
            space=self.space,
            session_id=self.session_id,
            actor=self.actor,
            wait_s=wait_s,
        )

    async def lookup(self) -> tuple[SandboxClient, Sandbox] | None:
        """The sandbox that the session has now; none is ever made."""
        client = await self.client()
        sandbox = await self.runtime.sessions.lookup(
            key=self.key, client=client, backend=self.space.backend_id
        )
        return None if sandbox is None else (client, sandbox)

    async def existing(self) -> tuple[FileStore, Sandbox]:
        """As `lookup`, with its files; NotFound if there is none."""
        found = await self.lookup()
        if found is None:
            raise NotFound(NO_SANDBOX)
        return files_of(found[0]), found[1]

    async def stored(self) -> tuple[FileStore, Sandbox]:
        """As `resolve`, with its files."""
        opened = await self.resolve()
        return files_of(opened.client), opened.sandbox

    def may(self, action: Action) -> bool:
        return self.principal.may(action, tenant_id=self.space.tenant_id, space_id=self.space.pk)

    def user(self, given: str) -> str:
        """`user`; another account for who may operate the space, else PermissionDenied."""
        if given != DEFAULT_USER:
            self.principal.require(
                Action.OPERATE, tenant_id=self.space.tenant_id, space_id=self.space.pk
            )
        return given

    async def admitted(self, timeout_s: float) -> limits.Place:
        place = await limits.admit_command(
            self.principal,
            tenant_id=self.space.tenant_id,
            space_id=self.space.pk,
            timeout_s=timeout_s,
        )
        self.quota_fields = place.fields
        return place

    async def note(self, action: str, *, used: bool = False, **details: Any) -> None:
        """Into the audit log, some time soon; `used` also notes that the session was."""
        entry = Line(
            actor=self.actor,
            action=action,
            target=self.session_id,
            tenant_id=self.space.tenant_id,
            space_id=self.space.pk,
            details=details,
        )
        await journal().note(entry, used=(self.space.pk, self.session_id) if used else None)
