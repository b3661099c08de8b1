"""Using the session of a conversation: resolve, run, pause, destroy.

Everything here is async and takes the runtime of the caller's event loop. A call may raise any
`sandboxes.errors.SandboxError`; its message is fit for people.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.utils import timezone

from console.audit.services import Actor
from console.fleet import attachments, reasons
from console.fleet.history import change_state
from console.fleet.models import Attachment, Session, SessionState
from console.fleet.runtime import Runtime
from console.fleet.workspace import files_of
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.client import SandboxClient
from sandboxes.errors import (
    InvalidRequest,
    NotFound,
    SandboxError,
    Unavailable,
    Unsupported,
)
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
from skills.tasks import check_snapshot

__all__ = [
    "LiveSession",
    "destroy",
    "files_of",
    "pause",
    "resolve",
    "sandbox_plan",
    "session_key",
    "stage",
    "touch",
    "unstage",
]

log = logging.getLogger(__name__)

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
    spaces = Space.objects.select_related("backend", "current_release", "candidate_release")
    space = await spaces.filter(pk=key.space).afirst()
    if space is None:
        raise NotFound("The session's space was deleted; use another one.", op="create")
    space.require_kept()
    space.backend.require_open()
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
            id=release.pk,
            snapshot=release.snapshot_id,
            # None fits that of a broken release, so that the session visibly falls back to the base.
            fingerprint=release.fingerprint if release.usable_on(space.backend) else "",
        )
        if release is not None and release.snapshot_id
        else None,
        env={**SESSION_ENV, **space.env},
    )


async def resolve(
    *, runtime: Runtime, space: Space, session_id: str, actor: Actor, wait_s: float | None = 30.0
) -> LiveSession:
    """The session's sandbox, made, claimed or woken as needed, with its attachments in place. `space` comes
    with its backend. A session that is bound costs no query."""
    client = await runtime.client(space.backend)
    key = session_key(space, session_id)

    async def plan() -> SandboxPlan:
        return await sandbox_plan(key, pause_on_idle=client.capabilities.pause)

    async def prepare(sandbox: Sandbox) -> None:
        await attachments.restore(client=client, sandbox=sandbox, key=key)

    try:
        async with runtime.place(space.backend_id):
            resolved = await runtime.sessions.resolve(
                key=key,
                client=client,
                backend=space.backend_id,
                plan=plan,
                prepare=prepare,
                actor=actor.name,
                wait_s=wait_s,
            )
    except InvalidRequest as error:
        if error.op == "create" and error.status == 404:
            raise await _nothing_to_start_from(key, error) from error
        raise
    return LiveSession(client=client, resolved=resolved)


async def _nothing_to_start_from(key: SessionKey, error: SandboxError) -> SandboxError:
    """What to do about a sandbox whose image the backend doesn't have."""
    space = await Space.objects.select_related(
        "backend", "current_release", "candidate_release"
    ).aget(pk=key.space)
    release = release_for_session(space, key.session)
    if release is not None and release.usable_on(space.backend):
        try:
            # Whoever asks next sees the release marked as broken.
            await sync_to_async(check_snapshot.delay)(release.pk)
        except Exception:
            log.exception("the snapshot of release %s could not be checked", release.pk)
        message = (
            f"The snapshot of release {release.generation} is gone from backend "
            f"“{space.backend.name}”; rebuild that release or roll back to another one, and call again."
        )
    else:
        message = (
            f"Backend “{space.backend.name}” has no template called “{space.base_template}”; choose "
            "another base template in the space's settings, or make that one there."
        )
    return InvalidRequest(message, op="create", status=error.status, detail=error.detail)


async def stage(
    *,
    runtime: Runtime,
    space: Space,
    session_id: str,
    name: str,
    data: AsyncIterable[bytes],
    actor: Actor,
) -> Attachment:
    """Hand a file in: it lies under /workspace/input, now and in every later sandbox of the session. See
    `attachments.stage`."""
    opened = _opener(runtime, space, session_id, actor)
    await opened()
    return await attachments.stage(
        session=await _row(space, session_id),
        name=name,
        data=data,
        open_sandbox=opened,
        actor=actor.name,
    )


async def unstage(
    *, runtime: Runtime, space: Space, session_id: str, name: str, actor: Actor
) -> bool:
    """Take a file back that was handed in. Idempotent; False if there was none."""
    return await attachments.forget(
        session=await _row(space, session_id),
        name=name,
        open_sandbox=_opener(runtime, space, session_id, actor),
    )


def _opener(
    runtime: Runtime, space: Space, session_id: str, actor: Actor
) -> attachments.OpenSandbox:
    async def opened() -> tuple[SandboxClient, Sandbox]:
        live = await resolve(runtime=runtime, space=space, session_id=session_id, actor=actor)
        return live.client, live.sandbox

    return opened


async def _row(space: Space, session_id: str) -> Session:
    row = await Session.objects.filter(space=space, session_id=session_id).afirst()
    if row is None:
        raise NotFound("There is no such session; resolve it or run something, and there is.")
    return row


async def destroy(*, runtime: Runtime, space: Space, session_id: str, actor: Actor) -> bool:
    """Delete the session's sandbox with its files, and forget its attachments. Idempotent; False if there
    was no sandbox."""
    client = await runtime.client(space.backend)
    had_one = await runtime.sessions.destroy(
        key=session_key(space, session_id),
        client=client,
        backend=space.backend_id,
        actor=actor.name,
    )
    await attachments.forget_all(space_id=space.pk, session_id=session_id)
    row = await Session.objects.filter(space=space, session_id=session_id).afirst()
    if row is not None and row.state != SessionState.DESTROYED:
        # There was no sandbox any more that an event could tell of.
        await change_state(
            session=row,
            state=SessionState.DESTROYED,
            kind="destroyed",
            reason=reasons.REQUESTED,
            actor=actor.name,
        )
    return had_one


async def pause(*, runtime: Runtime, session: Session, actor: Actor) -> None:
    """Freeze the session's sandbox with its memory; the next call wakes it. Idempotent."""
    client = await runtime.client(session.backend)
    if client.pausing is None:
        raise Unsupported(
            "This backend can't pause a sandbox. Destroy the session instead; its next call starts "
            "a new one from the release."
        )
    try:
        await client.pausing.pause(session.sandbox_id)
    except SandboxError as error:
        if not error.gone:
            raise
        await change_state(
            session=session, state=SessionState.LOST, kind="lost", reason=reasons.GONE
        )
        raise NotFound(
            "The session's sandbox is gone, so there is nothing to pause; its next call gets a new one.",
            op="pause",
        ) from error
    await change_state(
        session=session,
        state=SessionState.PAUSED,
        kind="paused",
        reason=reasons.REQUESTED,
        actor=actor.name,
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

    # A client of the gateway holds on to its sandbox by id: nothing may be put in its place.
    theirs = {
        session_id
        async for session_id in Session.objects.made_by_clients()
        .filter(space=space, state__in=[SessionState.ACTIVE, SessionState.PAUSED])
        .values_list("session_id", flat=True)
    }

    def fresh(binding: Binding) -> bool:
        if binding.key.session in theirs:
            return True
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
