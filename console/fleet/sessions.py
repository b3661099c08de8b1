"""Using the session of a conversation: resolve, run, pause, destroy.

Everything here is async and takes the runtime of the caller's event loop. A call may raise any
`sandboxes.errors.SandboxError`; its message is fit for people.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from django.utils import timezone

from console.audit.services import Actor
from console.fleet.history import write_note
from console.fleet.models import Session, SessionState
from console.fleet.runtime import Runtime
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.client import FileStore, SandboxClient
from sandboxes.errors import Unavailable, Unsupported
from sandboxes.sessions import (
    Binding,
    ReleaseImage,
    Resolved,
    Rollout,
    SandboxPlan,
    SessionKey,
)
from sandboxes.types import OnTimeout, Sandbox, TimeoutPolicy
from skills.ports import Switch
from skills.rollout import release_for_session

__all__ = [
    "LiveSession",
    "destroy",
    "files_of",
    "pause",
    "resolve",
    "sandbox_plan",
    "session_key",
    "touch",
]

SESSION_ENV = {
    "WEKNORA_SESSION_INPUT_DIR": "/workspace/input",
    "WEKNORA_SKILL_OUTPUT_DIR": "/workspace/output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A session with a sandbox that answers now."""

    client: SandboxClient
    resolved: Resolved

    @property
    def sandbox(self) -> Sandbox:
        return self.resolved.sandbox


def session_key(space: Space, session_id: str) -> SessionKey:
    """InvalidRequest for an id that can't be one."""
    return SessionKey(space.tenant_id, space.pk, session_id)


async def sandbox_plan(key: SessionKey, *, pause_on_idle: bool) -> SandboxPlan:
    """What a new sandbox of this session is made of now."""
    space = await Space.objects.select_related(
        "backend", "current_release", "candidate_release"
    ).aget(pk=key.space)
    revision = await NetworkPolicyRevision.objects.filter(space=key.space).alatest("number")
    release = release_for_session(space, key.session)
    return SandboxPlan(
        base_template=space.base_template,
        policy=revision.policy(),
        policy_revision=revision.number,
        timeout=TimeoutPolicy(
            timeout_s=space.idle_timeout_s,
            on_timeout=OnTimeout.PAUSE if pause_on_idle else OnTimeout.KILL,
            auto_resume=pause_on_idle,
        ),
        fingerprint=space.backend.fingerprint,
        release=ReleaseImage(
            id=release.pk, snapshot=release.snapshot_id, fingerprint=release.fingerprint
        )
        if release is not None and release.snapshot_id
        else None,
        env={**SESSION_ENV, **space.env},
    )


async def resolve(
    *, runtime: Runtime, space: Space, session_id: str, actor: Actor, wait_s: float | None = 30.0
) -> LiveSession:
    """The session's sandbox, made, claimed or woken as needed. `space` comes with its backend."""
    client = await runtime.client(space.backend)
    key = session_key(space, session_id)

    async def plan() -> SandboxPlan:
        return await sandbox_plan(key, pause_on_idle=client.capabilities.pause)

    resolved = await runtime.sessions.resolve(
        key=key,
        client=client,
        backend=space.backend_id,
        plan=plan,
        actor=actor.name,
        wait_s=wait_s,
    )
    return LiveSession(client=client, resolved=resolved)


async def destroy(*, runtime: Runtime, space: Space, session_id: str, actor: Actor) -> bool:
    """Delete the session's sandbox with its files. Idempotent; False if there was none."""
    client = await runtime.client(space.backend)
    return await runtime.sessions.destroy(
        key=session_key(space, session_id),
        client=client,
        backend=space.backend_id,
        actor=actor.name,
    )


async def pause(*, runtime: Runtime, session: Session, actor: Actor) -> None:
    """Freeze the session's sandbox with its memory; the next call wakes it. Idempotent."""
    client = await runtime.client(session.backend)
    if client.pausing is None:
        raise Unsupported(
            "This backend can't pause a sandbox. Destroy the session instead; its next call starts "
            "a new one from the release."
        )
    await client.pausing.pause(session.sandbox_id)
    session.state = SessionState.PAUSED
    await session.asave(update_fields=["state"])
    await write_note(
        session=session,
        kind="paused",
        reason="requested",
        actor=actor.name,
        sandbox_id=session.sandbox_id,
    )


async def touch(*, space_id: str, session_id: str) -> None:
    """Note that the session was used, for lists sorted by use."""
    await Session.objects.filter(space=space_id, session_id=session_id).aupdate(
        used_at=timezone.now()
    )


def mark_switched(switch: Switch) -> None:
    """Tell the running sessions of a space that what new ones get has changed.

    Called by the skills layer after a switch is committed, from a worker, again until it returns:
    Unavailable if any session could not be marked.
    """
    asyncio.run(_mark_switched(switch))


async def _mark_switched(switch: Switch) -> None:
    space = await Space.objects.select_related(
        "backend", "current_release", "candidate_release"
    ).aget(pk=switch.space_id)

    def fresh(binding: Binding) -> bool:
        if switch.session_ids is not None and binding.key.session not in switch.session_ids:
            return True
        release = release_for_session(space, binding.key.session)
        return binding.release == (release.pk if release else "")

    async with Runtime() as runtime:
        report = await runtime.sessions.mark_stale(
            tenant=space.tenant_id,
            space=space.pk,
            why=switch.reason,
            rollout=Rollout(space.rollout),
            fresh=fresh,
        )
    if report.failures:
        raise Unavailable(
            f"{len(report.failures)} sessions of space {space.slug} could not be told of the change; "
            "it is tried again."
        )


def files_of(client: SandboxClient) -> FileStore:
    """The backend's files, or Unsupported with the mend."""
    if client.files is None:
        raise Unsupported(
            "This backend gives no access to files; choose another one for this space."
        )
    return client.files
