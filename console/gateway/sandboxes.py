"""Sandboxes of a space: making one, telling whose one is, and forgetting it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone

from console.fleet import reasons
from console.fleet.history import change_state
from console.fleet.models import Backend, Session, SessionState
from console.fleet.sessions import destroy, session_key
from console.gateway import images
from console.gateway.caller import Caller
from console.gateway.models import GatewaySandbox
from console.gateway.narrowing import narrow
from console.gateway.tags import TAG_TEMPLATE, checked, is_generated, wanted_session
from sandboxes.client import ProtocolAccess
from sandboxes.errors import Conflict, Internal, NotFound, SandboxError, Unavailable
from sandboxes.sessions import TAG_BACKEND, TAG_SESSION, SandboxPlan, SessionTaken
from sandboxes.types import OnTimeout, Sandbox, TimeoutPolicy
from sandboxes.wire.server.bodies import Fields
from sandboxes.wire.server.newsandbox import CreateSpec, parse_new_sandbox
from skills.ids import new_id

__all__ = ["Owned", "create", "kill", "note_state", "owned", "register"]

_LOCK_WAIT_S = 30.0
_SWEPT_AT_ONCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A sandbox of the caller's space."""

    row: GatewaySandbox
    protocol: ProtocolAccess

    @property
    def path(self) -> str:
        return f"/sandboxes/{self.row.sandbox_id}"

    async def detail(self) -> Mapping[str, Any]:
        return await _detail(self.protocol, self.row.sandbox_id)

    async def call(
        self, op: str, method: str, path: str = "", body: Any = None, **options: Any
    ) -> tuple[Mapping[str, str], Any]:
        about = f"sandbox {self.row.sandbox_id}"
        return await self.protocol.call(
            op, method, self.path + path, body=body, about=about, **options
        )


async def create(
    caller: Caller, body: Fields, *, v1: bool, idempotency_key: str | None
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The backend's answer and the metadata of the new sandbox. With a key, the same request gives the same
    sandbox; Conflict if the key stood for another request."""
    spec = parse_new_sandbox(body, v1=v1)
    if not spec.secured:
        spec = replace(spec, secured=True)
    wish = _Wish.of(body, spec, v1=v1, request_key=_request_key(caller, idempotency_key))
    if wish.request_key and (done := await _replayed(caller, wish)):
        return done
    await _refuse_cordoned(caller.space.backend)
    session_id, explicit = wanted_session(spec.metadata)
    maker = _Maker(caller=caller, wish=wish)
    try:
        if session_id:
            return await maker.make(session_id)
    except SessionTaken:
        if explicit:
            raise
    except SandboxError as error:
        # Another program's id need not be one that a session can have.
        if explicit or error.op != "session":
            raise
    try:
        return await maker.make(wish.own_session)
    except SessionTaken:
        # The same key at the same time: the other one has made it meanwhile.
        if done := await _replayed(caller, wish):
            return done
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    spec: CreateSpec
    outbound: bool | None
    inbound: bool | None
    request_key: str
    request_digest: str

    @classmethod
    def of(cls, body: Fields, spec: CreateSpec, *, v1: bool, request_key: str) -> _Wish:
        outbound = body.flag("allow_internet_access", default=True)
        inbound = spec.policy.inbound
        outbound_said = body.raw("allow_internet_access") is not None
        inbound_said = body.object("network").raw("allowPublicTraffic") is not None
        canonical = json.dumps(body.data, sort_keys=True, separators=(",", ":"))
        return cls(
            spec=spec,
            # Clients of v1 send their defaults, true, whether or not anyone asked for it.
            outbound=outbound if outbound_said and not (v1 and outbound) else None,
            inbound=inbound if inbound_said and not (v1 and inbound) else None,
            request_key=request_key,
            request_digest=hashlib.sha256(canonical.encode()).hexdigest(),
        )

    @property
    def own_session(self) -> str:
        return f"e2b_{self.request_key[:26]}" if self.request_key else new_id("e2b")


@dataclass(slots=True, kw_only=True)
class _Maker:
    caller: Caller
    wish: _Wish

    async def make(self, session_id: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        caller, spec = self.caller, self.wish.spec
        try:
            key = session_key(caller.space, session_id)
        except SandboxError as error:
            error.op = "session"
            raise
        image: images.Image | None = None
        answer: Mapping[str, Any] = {}
        metadata: dict[str, str] = {}

        async def plan() -> SandboxPlan:
            nonlocal image
            image, base = await images.plan_for(caller, spec.template, session_id)
            policy = narrow(
                base.policy,
                outbound=self.wish.outbound,
                inbound=self.wish.inbound,
                allow=spec.policy.allow,
                deny=spec.policy.deny,
            )
            timeout = TimeoutPolicy(
                timeout_s=spec.timeout_s,
                on_timeout=OnTimeout.PAUSE if spec.auto_pause else OnTimeout.KILL,
            )
            env = {**base.env, **spec.env}
            return replace(base, policy=policy, timeout=timeout, env=env)

        async def make(plan: SandboxPlan) -> Sandbox:
            nonlocal answer, metadata
            assert image is not None  # noqa: S101 - `plan` ran first
            request = plan.request(key, caller.space.backend_id)
            metadata = {**checked(spec.metadata), **request.metadata, TAG_TEMPLATE: image.name}
            answer = await caller.protocol.create(
                replace(request, metadata=metadata),
                auto_resume=spec.auto_resume,
                mask_request_host=spec.mask_request_host,
                idempotency_key=self.wish.request_key or None,
            )
            sandbox = _sandbox(answer)
            try:
                await register(
                    caller,
                    caller.space.backend,
                    answer,
                    self.wish.request_key,
                    self.wish.request_digest,
                )
            except BaseException:
                with suppress(SandboxError):
                    await caller.client.delete(sandbox.id)
                raise
            return sandbox

        await caller.runtime.sessions.introduce(
            key=key,
            client=caller.client,
            backend=caller.space.backend_id,
            plan=plan,
            make=make,
            actor=caller.actor,
            wait_s=_LOCK_WAIT_S,
        )
        await caller.audit(
            "sandbox.create",
            str(answer.get("sandboxID")),
            template=image.name if image else "",
            session=session_id,
        )
        await _sweep(caller)
        return answer, metadata


async def owned(caller: Caller, sandbox_id: str) -> Owned:
    """NotFound for one that is gone or another space's."""
    row = await GatewaySandbox.objects.select_related("backend").filter(pk=sandbox_id).afirst()
    if row is None:
        return (await _discover(caller, sandbox_id))[0]
    if row.space_id != caller.space.pk:
        raise _missing(sandbox_id)
    return Owned(row=row, protocol=await caller.protocol_at(row.backend))


async def _discover(caller: Caller, sandbox_id: str) -> tuple[Owned, Mapping[str, Any]]:
    """One that was made through another door: the provider's tags say whose it is."""
    detail = await _detail(caller.protocol, sandbox_id)
    metadata = detail.get("metadata") or {}
    tags = {**caller.tags, TAG_BACKEND: caller.space.backend_id}
    # A build's sandbox has tags of the space too, but no session.
    if any(metadata.get(tag) != value for tag, value in tags.items()) or not metadata.get(
        TAG_SESSION
    ):
        raise _missing(sandbox_id)
    row = await register(caller, caller.space.backend, detail)
    return Owned(row=row, protocol=caller.protocol), detail


async def register(
    caller: Caller,
    backend: Backend,
    answer: Mapping[str, Any],
    request_key: str = "",
    request_digest: str = "",
) -> GatewaySandbox:
    """Remember where this sandbox is. Idempotent. Internal if its id is another one's already."""
    sandbox_id = str(answer["sandboxID"])
    domain = str(answer.get("domain") or "")
    secrets = {"access": answer.get("envdAccessToken") or ""}
    row, created = await GatewaySandbox.objects.aget_or_create(
        pk=sandbox_id,
        defaults={
            "domain": domain,
            "secrets": secrets,
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
    if not created and (row.domain, row.secrets) != (domain, secrets):
        row.domain, row.secrets = domain, secrets
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


async def _sweep(caller: Caller) -> None:
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


async def _replayed(
    caller: Caller, wish: _Wish
) -> tuple[Mapping[str, Any], Mapping[str, str]] | None:
    row = (
        await GatewaySandbox.objects.select_related("backend")
        .filter(request_key=wish.request_key)
        .afirst()
    )
    if row is None:
        return None
    if row.request_digest != wish.request_digest:
        raise Conflict("This Idempotency-Key was used for another request; choose a new key")
    detail = await _detail(await caller.protocol_at(row.backend), row.sandbox_id)
    return detail, detail.get("metadata") or {}


def _request_key(caller: Caller, key: str | None) -> str:
    if not key:
        return ""
    return hashlib.sha256(f"{caller.space.pk}\n{key}".encode()).hexdigest()


async def _refuse_cordoned(backend: Backend) -> None:
    until = backend.cordoned_until
    if until is not None and until > timezone.now():
        raise Unavailable(
            f"Backend “{backend.name}” takes no new sandboxes just now; try again later.",
            retry_after_s=(until - timezone.now()).total_seconds(),
        )


async def _detail(protocol: ProtocolAccess, sandbox_id: str) -> Mapping[str, Any]:
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


def _sandbox(answer: Mapping[str, Any]) -> Sandbox:
    return Sandbox(
        id=str(answer["sandboxID"]),
        template_id=str(answer.get("templateID") or ""),
        access_token=answer.get("envdAccessToken") or None,
        traffic_token=answer.get("trafficAccessToken") or None,
        domain=answer.get("domain") or None,
    )
