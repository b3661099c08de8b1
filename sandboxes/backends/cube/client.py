"""The contract over a Cube cluster: what the wire client does, and the waiting, checking and repairing that
Cube needs. Every wait has an end; nothing here ever concludes that a sandbox is gone but from the
control plane's own 404."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from sandboxes.backends.cube.control import CubeControl, Features, new_sandbox
from sandboxes.backends.cube.images import CubeSnapshots, CubeTemplates
from sandboxes.backends.cube.marks import MARK_KEY, NEVER, Mark, refuse_mounts
from sandboxes.backends.cube.memory import Memory
from sandboxes.backends.cube.protocol import CubeProtocol
from sandboxes.backends.cube.waiting import Patience, Waiter
from sandboxes.backends.e2b import E2B_CAPABILITIES, E2BClient
from sandboxes.client import NetworkControl, Pausing
from sandboxes.errors import (
    Capacity,
    Conflict,
    NotFound,
    SandboxError,
    Terminal,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    ListFilter,
    OnTimeout,
    Sandbox,
    SandboxInfo,
    SandboxState,
)
from sandboxes.wire.client import WireSettings
from sandboxes.wire.failures import not_the_protocol
from sandboxes.words import gettext_noop as _

__all__ = ["CAPABILITIES", "CubeClient"]

logger = logging.getLogger(__name__)

CAPABILITIES = replace(
    E2B_CAPABILITIES,
    template_builds=True,
    private_ranges_closed=True,
    notes={
        "private_ranges_closed": _(
            "Unless a policy allows an address in them; 100.64.0.0/10 stays open."
        ),
        "template_builds": _(
            "A template is made at the cluster, from an image; one that is there can be rebuilt."
        ),
        "network_update": _(
            "Outbound can be changed while a sandbox runs; inbound is fixed at create."
        ),
        "outbound_domain_lists": _(
            "Names in an allow list are enforced for HTTP, HTTPS and addresses "
            "that the cluster's DNS gave; asking the DNS itself is not blocked."
        ),
    },
)
_ABOUT_TO_END = timedelta(seconds=5)


class CubeClient(E2BClient):
    """`resolvers` are the blocks of the DNS servers that closed sandboxes may still ask."""

    def __init__(
        self,
        settings: WireSettings,
        capabilities: object = CAPABILITIES,
        *,
        features: Features,
        resolvers: tuple[str, ...] = (),
        patience: Patience | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(settings, capabilities, transport=transport)  # type: ignore[arg-type]
        control = self._wire.control
        assert isinstance(control, CubeControl)  # noqa: S101 - as the settings say
        self.features = features
        self._control = control
        self._resolvers = resolvers
        self._patience = patience or Patience()
        self._policies: Memory[NetworkPolicy] = Memory()
        # A token is told once, at create. The caller stores it for good; this serves a caller that
        # connects again without it, in the process that made the sandbox.
        self._tokens: Memory[str] = Memory()
        self._snapshots = CubeSnapshots(self)  # type: ignore[assignment]
        self._templates = CubeTemplates(control)  # type: ignore[assignment]
        self._pausing = _Pausing(self)  # type: ignore[assignment]
        self._network = _Network(self)  # type: ignore[assignment]
        self._protocol = CubeProtocol(self, self._wire)

    @property
    def control(self) -> CubeControl:
        return self._control

    def waiter(self, within_s: float) -> Waiter:
        return Waiter(within_s=within_s, step_s=self._patience.step_s)

    @property
    def patience(self) -> Patience:
        return self._patience

    # Create

    async def create(self, request: CreateRequest) -> Sandbox:
        return (await self.make(request, {}))[0]

    async def make(
        self, request: CreateRequest, more: Mapping[str, Any]
    ) -> tuple[Sandbox, Mapping[str, Any]]:
        """Create it, with `more` in the request's `lifecycle` and `network`; and the cluster's own answer."""
        refuse_mounts(request.metadata, self.provider)
        mark = Mark.of(request, math.ceil(request.timeout.timeout_s))
        body = new_sandbox(
            replace(
                request,
                network=self.policy(request.network),
                metadata={**request.metadata, MARK_KEY: str(mark)},
            )
        )
        for name, extra in more.items():
            body[name] = {**body[name], **extra}
        try:
            reply = await self._control.create_by(body)
        except (TimedOut, Unavailable):
            await self._undo(mark)
            raise
        made = self._control.made(reply, request)
        self._tokens.keep(made.id, made.traffic_token)
        try:
            await self.ready(made, op="create")
        except BaseException:
            await self._discard(made.id)
            raise
        return made, reply

    def policy(self, policy: NetworkPolicy) -> NetworkPolicy:
        """With a way to the DNS servers, where names are allowed and everything else is not."""
        if not (self._resolvers and policy.closed_by_default and policy.allowed_domains):
            return policy
        return replace(policy, allow=tuple(sorted({*policy.allow, *self._resolvers})))

    async def _undo(self, mark: Mark) -> None:
        """Delete what an unanswered create made. Its traffic token, given once, is lost with the answer, so
        it could not be used. One that appears later still has its owner's tags, for the reaper."""
        waiter = self.waiter(self._patience.lookup_s)
        while True:
            try:
                marks = await self._control.marks()
            except SandboxError as error:
                logger.warning("Could not look for an unanswered create: %s", error.detail)
                return
            found = [key for key, value in marks.items() if value.operation == mark.operation]
            for sandbox_id in found:
                await self._discard(sandbox_id)
            if found or not await waiter.again():
                return

    async def _discard(self, sandbox_id: str) -> None:
        try:
            await self.delete(sandbox_id)
        except NotFound:
            return
        except SandboxError as error:
            logger.warning("Sandbox %s is left to the reaper: %s", sandbox_id, error.detail)

    async def ready(self, sandbox: Sandbox, *, op: str) -> None:
        """Returns when envd answers through the proxy: “running” alone does not mean that it does. Attempts
        are short, because a connection that survived a resume may hang."""
        envd = self._wire.envd
        waiter = self.waiter(self._patience.ready_s)
        while True:
            failure: SandboxError
            try:
                answer = await envd.probe(op, sandbox, timeout_s=self._patience.attempt_s)
            except (Unavailable, TimedOut) as error:
                failure = error
            else:
                if answer.ok:
                    return
                if answer.status == httpx.codes.FORBIDDEN and sandbox.traffic_token is None:
                    return  # closed to us, whose token is lost; the caller decides what that means
                if answer.status in (400, 404):
                    raise not_the_protocol(envd.service, op, answer.status, answer.body)
                failure = await envd.refusal(op, sandbox, answer)
                if not isinstance(failure, Unavailable | TimedOut | Conflict | Capacity):
                    raise failure
            if not await waiter.again(failure.retry_after_s):
                raise Unavailable(
                    f"The sandbox {sandbox.id} runs but cannot be reached through the proxy; check the "
                    "proxy URL and the sandbox domain, then try again.",
                    provider=self.provider,
                    op=op,
                    detail=f"{failure.kind}: {failure.detail}",
                )

    # Connect

    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None = None, timeout_s: float | None = None
    ) -> Sandbox:
        traffic_token = traffic_token or self._tokens.get(sandbox_id)
        self._tokens.keep(sandbox_id, traffic_token)
        info, mark = await self._settled(sandbox_id, op="connect")
        if info.state is SandboxState.TERMINAL:
            raise Terminal(
                f"The sandbox {sandbox_id} has ended for good; start a new one.",
                provider=self.provider,
                op="connect",
            )
        sandbox = await self._connect(sandbox_id, traffic_token, timeout_s)
        ends_soon = info.end_at is not None and info.end_at < datetime.now(UTC) + _ABOUT_TO_END
        if info.state is SandboxState.RUNNING and not ends_soon:
            return sandbox
        seconds = timeout_s if timeout_s is not None else (mark.timeout_s if mark else None)
        await self._awake(sandbox_id, seconds)
        await self._wire.drop_idle()
        await self.ready(sandbox, op="connect")
        was_asleep = info.state is not SandboxState.RUNNING
        if was_asleep and (policy := self._policies.get(sandbox_id)) is not None:
            await self._control.set_policy(sandbox_id, policy)
        return replace(sandbox, resumed=was_asleep)

    async def _connect(
        self, sandbox_id: str, traffic_token: str | None, timeout_s: float | None
    ) -> Sandbox:
        waiter = self.waiter(self._patience.busy_s)
        while True:
            try:
                return await self._control.connect(
                    sandbox_id, traffic_token=traffic_token, timeout_s=timeout_s
                )
            except Conflict as error:
                if not await waiter.again(error.retry_after_s):
                    raise

    async def _awake(self, sandbox_id: str, timeout_s: float | None) -> None:
        """Returns when the sandbox runs and goes on running: a resume can be lost without a word, and the
        sweeper can pause what was just woken."""
        waiter = self.waiter(self._patience.resume_s)
        fresh = None if timeout_s is None else max(1, math.ceil(timeout_s))
        confirmed = False
        while True:
            info = await self.look(sandbox_id, op="connect")
            if info.raw_state == "running":
                if confirmed or fresh is None:
                    return
                await self._control.set_timeout(sandbox_id, fresh, op="connect")
                confirmed = True
                continue
            confirmed = False
            if not await waiter.again():
                raise self.stuck(info, "connect")
            if info.state is SandboxState.PAUSED:
                await self._connect(sandbox_id, None, timeout_s)

    async def _settled(self, sandbox_id: str, *, op: str) -> tuple[SandboxInfo, Mark | None]:
        """Once it is in no transition; as it is, if that takes too long."""
        waiter = self.waiter(self._patience.pause_s)
        while True:
            detail = await self._control.detail(sandbox_id, op=op)
            info = self._control._info(op, detail)
            if info.state is not SandboxState.TRANSITIONING:
                return info, Mark.read(detail.get("metadata") or {})
            if not await waiter.again():
                raise self.stuck(info, op)

    async def look(self, sandbox_id: str, *, op: str) -> SandboxInfo:
        return await self._control.get(sandbox_id, op=op)

    def stuck(self, info: SandboxInfo, op: str) -> TimedOut:
        return TimedOut(
            f"The sandbox {info.id} stays “{info.raw_state}” at the Cube cluster; try again in a minute, "
            "or delete it if that doesn't help.",
            provider=self.provider,
            op=op,
            detail=f"state {info.raw_state}",
        )

    # List and delete

    def list(self, filter: ListFilter) -> AsyncIterator[SandboxInfo]:
        return self._control.list_sandboxes(metadata=filter.metadata, states=filter.states)

    async def delete(self, sandbox_id: str) -> None:
        """Never wakes it, but for versions that can't delete a paused one, and then once."""
        waiter = self.waiter(self._patience.busy_s)
        tried = woken = False
        while True:
            try:
                await self._control.delete(sandbox_id)
            except NotFound:
                if tried:
                    break
                raise
            except TimedOut:
                if await self._is_gone(sandbox_id):
                    break
                raise
            except (Conflict, Unavailable) as error:
                if error.retry_after_s is None and isinstance(error, Unavailable):
                    raise
                tried = True
                if error.retry_after_s is None and not woken and await self._is_paused(sandbox_id):
                    woken = True
                    await self._connect(sandbox_id, None, None)
                elif not await waiter.again(error.retry_after_s):
                    raise
            else:
                break
        self._policies.forget(sandbox_id)
        self._tokens.forget(sandbox_id)

    async def _is_gone(self, sandbox_id: str) -> bool:
        try:
            info = await self.look(sandbox_id, op="delete")
        except NotFound:
            return True
        return info.state is SandboxState.TERMINAL

    async def _is_paused(self, sandbox_id: str) -> bool:
        return (await self.look(sandbox_id, op="delete")).state is SandboxState.PAUSED

    # Pause and policy

    async def pause(self, sandbox_id: str) -> None:
        detail = await self._control.detail(sandbox_id, op="pause")
        info = self._control._info("pause", detail)
        if info.state is SandboxState.PAUSED:
            return
        if not _kept_when_paused(detail):
            # Cube reaps a paused sandbox that would have been killed when idle.
            await self._control.set_timeout(sandbox_id, NEVER, op="pause")
        await self._pause(sandbox_id)
        waiter = self.waiter(self._patience.pause_s)
        while (info := await self.look(sandbox_id, op="pause")).state is not SandboxState.PAUSED:
            if not await waiter.again():
                raise self.stuck(info, "pause")

    async def _pause(self, sandbox_id: str) -> None:
        """Asks until it is taken: what has just started is “not running” for some seconds."""
        waiter = self.waiter(self._patience.busy_s)
        while True:
            try:
                return await self._control.pause(sandbox_id)
            except (Conflict, TimedOut) as error:
                state = (await self.look(sandbox_id, op="pause")).state
                if state in (SandboxState.PAUSED, SandboxState.TRANSITIONING):
                    return None
                if isinstance(error, TimedOut) or not await waiter.again(error.retry_after_s):
                    raise

    async def set_policy(
        self, sandbox_id: str, policy: NetworkPolicy, *, inbound_as_it_is: bool = False
    ) -> None:
        detail = await self._control.detail(sandbox_id, op="update network")
        mark = Mark.read(detail.get("metadata") or {})
        if not inbound_as_it_is and mark is not None and mark.inbound != policy.inbound:
            raise Unsupported(
                "The inbound switch of a running sandbox cannot be changed at Cube; start a new sandbox "
                "with the new policy.",
                provider=self.provider,
                op="update network",
            )
        widened = self.policy(policy)
        await self._control.set_policy(sandbox_id, widened)
        # A resume may bring back the policy of the create, so it is set again then.
        self._policies.keep(sandbox_id, widened)


class _Pausing(Pausing):
    def __init__(self, client: CubeClient) -> None:
        self._client = client

    async def pause(self, sandbox_id: str) -> None:
        await self._client.pause(sandbox_id)


class _Network(NetworkControl):
    def __init__(self, client: CubeClient) -> None:
        self._client = client

    async def update(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        await self._client.set_policy(sandbox_id, policy)


def _kept_when_paused(detail: Mapping[str, object]) -> bool:
    """True only if we know that it was made to be paused when idle."""
    mark = Mark.read(detail.get("metadata") or {})  # type: ignore[arg-type]
    return mark is not None and mark.on_timeout is OnTimeout.PAUSE
