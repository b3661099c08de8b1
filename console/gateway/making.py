"""Making a sandbox as a client asks for it, and as its space allows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone

from console.fleet.models import Backend
from console.fleet.sessions import session_key
from console.gateway import images
from console.gateway.caller import Caller, protocol_of
from console.gateway.models import GatewaySandbox
from console.gateway.narrowing import narrow
from console.gateway.sandboxes import detail_of, register, sweep
from console.gateway.tags import TAG_TEMPLATE, checked, wanted_session
from sandboxes.errors import Conflict, SandboxError, Unavailable
from sandboxes.sessions import SandboxPlan, SessionTaken
from sandboxes.types import OnTimeout, Sandbox, TimeoutPolicy
from sandboxes.wire.server.bodies import Fields
from sandboxes.wire.server.newsandbox import CreateSpec, parse_new_sandbox
from skills.ids import new_id

__all__ = ["create"]

_LOCK_WAIT_S = 30.0


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
            # A backend that can't pause ends what is idle; `lifecycle.onTimeout` of its detail says so.
            pause = spec.auto_pause and caller.client.capabilities.pause
            timeout = TimeoutPolicy(
                timeout_s=spec.timeout_s,
                on_timeout=OnTimeout.PAUSE if pause else OnTimeout.KILL,
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
                row = await register(
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
            answer = row.opened(answer)
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
        await sweep(caller)
        return answer, metadata


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
    detail = await detail_of(protocol_of(await caller.client_at(row.backend)), row.sandbox_id)
    return row.opened(detail), detail.get("metadata") or {}


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


def _sandbox(answer: Mapping[str, Any]) -> Sandbox:
    return Sandbox(
        id=str(answer["sandboxID"]),
        template_id=str(answer.get("templateID") or ""),
        access_token=answer.get("envdAccessToken") or None,
        traffic_token=answer.get("trafficAccessToken") or None,
        domain=answer.get("domain") or None,
    )
