"""How one session stands at this moment: what Redis binds it to, what its backend says of that, and what a
new sandbox would have that this one has not. Looking changes nothing: nothing is woken or kept awake."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from asgiref.sync import sync_to_async

from console.fleet.models import GATEWAY_ORIGIN, Session, SessionState
from console.fleet.runtime import Runtime
from console.fleet.sessions import session_key
from console.policies.models import NetworkPolicyRevision
from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError
from sandboxes.sessions import Binding, Stale, TurnState
from sandboxes.types import SandboxInfo, SandboxState
from skills.rollout import release_for_session

__all__ = ["Condition", "Drift", "condition_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """`what` is release, policy, template or backend; empty `has` or `wanted` is none of it."""

    what: str
    has: str
    wanted: str


@dataclass(slots=True, kw_only=True)
class Condition:
    """`trouble` is a sentence about what could not be found out. `binding` is None without a sandbox."""

    state: SessionState
    binding: Binding | None = None
    info: SandboxInfo | None = None
    stale: Stale | None = None
    turn: TurnState | None = None
    drift: list[Drift] = field(default_factory=list)
    trouble: str = ""
    updates_policy: bool = False
    """A newer policy can be applied to it as it runs."""
    can_pause: bool = False
    has_terminals: bool = False
    is_client_s: bool = False
    """A client of the gateway holds on to its sandbox: nothing may be put in its place."""

    @property
    def is_running(self) -> bool:
        return self.state == SessionState.ACTIVE

    @property
    def has_sandbox(self) -> bool:
        return self.state in (SessionState.ACTIVE, SessionState.PAUSED)

    @property
    def ends_at(self) -> datetime | None:
        """When it is paused or stopped, if nothing uses it until then."""
        return self.info.end_at if self.info is not None and self.is_running else None


async def condition_of(runtime: Runtime, session: Session) -> Condition:
    """`session` comes with its space, and that with its backend and releases."""
    found = Condition(
        state=SessionState(session.state),
        is_client_s=session.created_by.startswith(f"{GATEWAY_ORIGIN},"),
    )
    if session.state == SessionState.DESTROYED:
        return found
    try:
        client = await runtime.client(session.space.backend)
        capabilities = client.capabilities
        found.updates_policy = capabilities.network_update
        found.can_pause, found.has_terminals = capabilities.pause, capabilities.terminal
        key = session_key(session.space, session.session_id)
        snapshot = await runtime.sessions.state(key=key)
        found.stale, found.turn = snapshot.stale, snapshot.turn
        found.binding = snapshot.binding(key)
        if found.binding is None:
            found.state = SessionState.LOST
        elif found.binding.backend == session.space.backend_id:
            await _ask(client, found, found.binding.sandbox_id)
    except SandboxError as error:
        found.trouble = error.message
    if found.binding is not None and found.has_sandbox and not found.is_client_s:
        found.drift = await sync_to_async(_drift)(session, found.binding)
        await _look_at_template(runtime, session, found)
    return found


async def _ask(client: SandboxClient, found: Condition, sandbox_id: str) -> None:
    try:
        found.info = await client.get(sandbox_id)
    except SandboxError as error:
        if not error.gone:
            raise
        found.state = SessionState.LOST
        return
    if found.info.state is SandboxState.PAUSED:
        found.state = SessionState.PAUSED
    elif found.info.state is SandboxState.RUNNING:
        found.state = SessionState.ACTIVE


def _drift(session: Session, binding: Binding) -> list[Drift]:
    space, found = session.space, []
    if binding.backend != space.backend_id:
        found.append(Drift(what="backend", has=session.backend.name, wanted=space.backend.name))
    wanted = release_for_session(space, session.session_id)
    if wanted is not None and not wanted.usable_on(space.backend):
        wanted = None
    if binding.release != (wanted.pk if wanted else ""):
        has = session.release
        found.append(
            Drift(
                what="release",
                has=str(has.generation) if has and has.pk == binding.release else "",
                wanted=str(wanted.generation) if wanted else "",
            )
        )
    newest = NetworkPolicyRevision.objects.filter(space=space).latest("number").number
    # What was applied to it as it runs is in the row; the binding says what it was made with.
    number = session.policy.number if session.policy else 0
    if number != newest:
        found.append(Drift(what="policy", has=str(number or ""), wanted=str(newest)))
    return found


async def _look_at_template(runtime: Runtime, session: Session, found: Condition) -> None:
    """Of a sandbox that stands on no release. A template goes by its name or its id."""
    binding, wanted = found.binding, session.space.base_template
    if binding is None or binding.release or binding.template == wanted:
        return
    if any(drift.what in ("release", "backend") for drift in found.drift):
        return
    with suppress(SandboxError):
        client = await runtime.client(session.space.backend)
        if client.templates is None:
            return
        template = await client.templates.get(wanted)
        if binding.template not in (template.id, *template.names):
            found.drift.append(Drift(what="template", has=binding.template, wanted=wanted))
