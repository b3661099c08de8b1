"""Sandboxes of a space: telling whose one is, remembering where it is, ending it, and forgetting it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from console.fleet import reasons
from console.fleet.history import change_state
from console.fleet.models import Backend, Session, SessionState
from console.fleet.sessions import destroy, session_key
from console.gateway.caller import Caller, protocol_of
from console.gateway.models import GatewaySandbox
from console.gateway.tags import is_generated
from sandboxes.client import ProtocolAccess, SandboxClient
from sandboxes.errors import Internal, NotFound, SandboxError, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.sessions import TAG_BACKEND, TAG_SESSION

__all__ = ["Owned", "detail_of", "kill", "note_state", "owned", "register", "sweep"]

_SWEPT_AT_ONCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A sandbox of the caller's space."""

    row: GatewaySandbox
    client: SandboxClient

    @property
    def protocol(self) -> ProtocolAccess:
        return protocol_of(self.client)

    async def set_policy(self, policy: NetworkPolicy) -> None:
        """Both switches. Unsupported where one of them is fixed at create."""
        if self.client.network is None:
            raise Unsupported(
                self.client.capabilities.notes.get(
                    "network_update",
                    "This backend can't change the network of what runs; start a new sandbox.",
                ),
                status=501,
            )
        await self.client.network.update(self.row.sandbox_id, policy)

    @property
    def path(self) -> str:
        return f"/sandboxes/{self.row.sandbox_id}"

    async def detail(self) -> Mapping[str, Any]:
        return await detail_of(self.protocol, self.row.sandbox_id)

    async def call(
        self, op: str, method: str, path: str = "", body: Any = None, **options: Any
    ) -> tuple[Mapping[str, str], Any]:
        about = f"sandbox {self.row.sandbox_id}"
        return await self.protocol.call(
            op, method, self.path + path, body=body, about=about, **options
        )


async def owned(caller: Caller, sandbox_id: str) -> Owned:
    """NotFound for one that is gone or another space's."""
    row = await GatewaySandbox.objects.select_related("backend").filter(pk=sandbox_id).afirst()
    if row is None:
        return (await _discover(caller, sandbox_id))[0]
    if row.space_id != caller.space.pk:
        raise _missing(sandbox_id)
    return Owned(row=row, client=await caller.client_at(row.backend))


async def _discover(caller: Caller, sandbox_id: str) -> tuple[Owned, Mapping[str, Any]]:
    """One that was made through another door: the provider's tags say whose it is."""
    detail = await detail_of(caller.protocol, sandbox_id)
    metadata = detail.get("metadata") or {}
    tags = {**caller.tags, TAG_BACKEND: caller.space.backend_id}
    # A build's sandbox has tags of the space too, but no session.
    if any(metadata.get(tag) != value for tag, value in tags.items()) or not metadata.get(
        TAG_SESSION
    ):
        raise _missing(sandbox_id)
    key = session_key(caller.space, metadata[TAG_SESSION])
    traffic = await caller.runtime.sessions.traffic_token(key=key, sandbox_id=sandbox_id)
    told = {"trafficAccessToken": traffic, **detail}
    row = await register(caller, caller.space.backend, told, told_all=False)
    return Owned(row=row, client=caller.client), detail


async def register(
    caller: Caller,
    backend: Backend,
    answer: Mapping[str, Any],
    request_key: str = "",
    request_digest: str = "",
    *,
    told_all: bool = True,
) -> GatewaySandbox:
    """Remember where this sandbox is, and what opens it (`told_all` as in `GatewaySandbox.secrets_by`).
    Idempotent. Internal if its id is another one's already."""
    sandbox_id = str(answer["sandboxID"])
    domain = str(answer.get("domain") or "")
    row, created = await GatewaySandbox.objects.aget_or_create(
        pk=sandbox_id,
        defaults={
            "domain": domain,
            "secrets": GatewaySandbox().secrets_by(answer, told_all=told_all),
            "space": caller.space,
            "backend": backend,
            "request_key": request_key,
            "request_digest": request_digest,
        },
    )
    if row.space_id != caller.space.pk or row.backend_id != backend.pk:
        raise Internal(
            "The backend gave this sandbox the id of another one, so it can't be used; tell the "
            "backend's operator.",
            detail=f"sandbox {sandbox_id} of backend {backend.pk} is known at {row.backend_id}",
        )
    known = row.secrets if created else row.secrets_by(answer, told_all=told_all)
    if (row.domain, row.secrets) != (domain, known):
        row.domain, row.secrets = domain, known
        await row.asave(update_fields=["domain", "secrets"])
    row.backend = backend
    return row


async def kill(caller: Caller, sandbox: Owned) -> None:
    """NotFound if it is gone."""
    sandbox_id = sandbox.row.sandbox_id
    session = await _session(sandbox.row)
    try:
        detail = await sandbox.detail()
    except NotFound:
        await _forget(caller, sandbox.row, session)
        raise
    session_id = str((detail.get("metadata") or {}).get(TAG_SESSION, ""))
    if session_id and await _is_bound(caller, session_id, sandbox.row):
        await destroy(
            runtime=caller.runtime,
            space=caller.space,
            session_id=session_id,
            actor=caller.principal.actor,
        )
    else:
        await sandbox.call("delete", "DELETE")
    await GatewaySandbox.objects.filter(pk=sandbox_id).adelete()
    await caller.audit("sandbox.kill", sandbox_id, session=session_id)


async def note_state(caller: Caller, row: GatewaySandbox, state: SessionState, kind: str) -> None:
    """Move the session's row along with the sandbox; not an error if it has none."""
    session = await _session(row)
    if session is not None:
        await change_state(
            session=session, state=state, kind=kind, reason=reasons.REQUESTED, actor=caller.actor
        )


async def _is_bound(caller: Caller, session_id: str, row: GatewaySandbox) -> bool:
    key = session_key(caller.space, session_id)
    stored = (await caller.runtime.sessions.state(key=key)).stored
    return (
        stored is not None
        and row.backend_id == caller.space.backend_id
        and stored.parse(key).sandbox_id == row.sandbox_id
    )


async def _session(row: GatewaySandbox) -> Session | None:
    return await Session.objects.filter(space=row.space_id, sandbox_id=row.sandbox_id).afirst()


async def _forget(caller: Caller, row: GatewaySandbox, session: Session | None) -> None:
    """One that ended by itself: its deadline, or its backend."""
    await GatewaySandbox.objects.filter(pk=row.pk).adelete()
    if session is None:
        return
    if is_generated(session.session_id) and row.backend_id == caller.space.backend_id:
        await destroy(
            runtime=caller.runtime,
            space=caller.space,
            session_id=session.session_id,
            actor=caller.principal.actor,
        )
    else:
        await change_state(
            session=session, state=SessionState.LOST, kind="lost", reason=reasons.GONE
        )


async def sweep(caller: Caller) -> None:
    """Forget a few of the space's own sandboxes that are known to have ended, so that what is remembered does
    not grow with every sandbox that ever was. Never fails the call that it is part of."""
    lost = Session.objects.made_by_clients().filter(space=caller.space, state=SessionState.LOST)
    async for session in lost.order_by("state_changed_at")[:_SWEPT_AT_ONCE]:
        row = await GatewaySandbox.objects.filter(pk=session.sandbox_id).afirst()
        with suppress(SandboxError):
            if row is not None:
                await _forget(caller, row, session)
            elif is_generated(session.session_id):
                await destroy(
                    runtime=caller.runtime,
                    space=caller.space,
                    session_id=session.session_id,
                    actor=caller.principal.actor,
                )


async def detail_of(protocol: ProtocolAccess, sandbox_id: str) -> Mapping[str, Any]:
    if not sandbox_id.isascii() or not sandbox_id.replace("-", "").isalnum():
        raise _missing(sandbox_id)
    _, detail = await protocol.call(
        "get", "GET", f"/sandboxes/{sandbox_id}", about=f"sandbox {sandbox_id}"
    )
    if not isinstance(detail, dict):
        raise Internal("The backend answered with something that is no sandbox.")
    return detail


def _missing(sandbox_id: str) -> NotFound:
    return NotFound(f"Sandbox “{sandbox_id}” not found")
