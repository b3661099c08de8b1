"""One build from its row to its release: the steps in order, and every way in which it may end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from django.conf import settings as django_settings

from sandboxes.errors import SandboxError
from skills.build import recovery
from skills.build.claim import Claim, take
from skills.build.context import BuildContext, Item, in_db
from skills.build.failures import BuildCancelled, BuildFailed, ClaimLost, described
from skills.build.settings import BuildSettings
from skills.build.steps import clean, install, prepare, record, snapshot, switch, upload, verify
from skills.lock import SpaceLock, hold_space
from skills.log import BuildLog, Redactor
from skills.models import Build, BuildState, BuildStep

__all__ = ["run"]

log = logging.getLogger(__name__)

Step = Callable[[BuildContext], Awaitable[None]]
STEPS: tuple[tuple[BuildStep, Step], ...] = (
    (BuildStep.PREPARE, prepare.run),
    (BuildStep.UPLOAD, upload.run),
    (BuildStep.INSTALL, install.run),
    (BuildStep.VERIFY, verify.run),
    (BuildStep.CLEAN, clean.run),
    (BuildStep.RECORD, record.run),
    (BuildStep.SNAPSHOT, snapshot.run),
    (BuildStep.SWITCH, switch.run),
)


async def run(build_id: str, *, settings: BuildSettings | None = None) -> None:
    """Run a build to its end. Returns at once if it is over, if another build of its space comes first,
    or if another worker has the space. Its outcome is in its row; raises only if the row can't be written.

    May be called again at any time: a build that a dead worker left is finished, or begun anew.
    """
    settings = settings or BuildSettings.current()
    space_id = await in_db(
        lambda: Build.objects.values_list("space_id", flat=True).get(pk=build_id)
    )
    async with hold_space(space_id, lease_s=settings.lease_s) as lock:
        if lock is None:
            return
        taken = await in_db(take, build_id)
        if taken is not None:
            await _build(*taken, lock, settings)


async def _build(build: Build, claim: Claim, lock: SpaceLock, settings: BuildSettings) -> None:
    items = await in_db(_items, build)
    secrets = (str(value) for value in build.space.backend.secrets.values())
    redactor = Redactor([*secrets, django_settings.SECRET_KEY, *django_settings.FIELD_KEYS])
    async with contextlib.AsyncExitStack() as stack:
        build_log = await stack.enter_async_context(BuildLog(build.pk, redactor))
        try:
            client = await stack.enter_async_context(await build.space.backend.open_client())
        except SandboxError as error:
            build_log.say(str(error))
            await in_db(claim.finish, BuildState.FAILED, code=error.kind, error=str(error))
            return
        context = BuildContext(
            build=build,
            space=build.space,
            claim=claim,
            client=client,
            lock=lock,
            log=build_log,
            settings=settings,
            items=items,
        )
        try:
            await _to_the_end(context)
        except ClaimLost:
            if await in_db(_is_anothers, claim):
                log.warning("build %s was taken over by another worker", build.pk)
                return
        await recovery.undo(context)
        await context.discard_sandbox()


async def _to_the_end(context: BuildContext) -> None:
    """Run the steps and write down how they ended. Raises ClaimLost."""
    try:
        await _supervised(context, _steps(context))
    except BuildCancelled:
        context.log.say("The build was cancelled.")
        await in_db(context.claim.finish, BuildState.CANCELLED)
    except ClaimLost:
        raise
    except Exception as error:
        code, sentence = described(error)
        if code == "internal":
            log.exception("build %s failed", context.build.pk)
        context.log.say(sentence)
        fields = {"report": error.report} if isinstance(error, BuildFailed) and error.report else {}
        await in_db(context.claim.finish, BuildState.FAILED, code=code, error=sentence, **fields)


async def _steps(context: BuildContext) -> None:
    first = await recovery.resume(context)
    for step, run_step in STEPS[first:]:
        await context.begin_step(step)
        limit = context.settings.step_s[step]
        try:
            async with asyncio.timeout(limit):
                await run_step(context)
        except TimeoutError:
            raise BuildFailed(
                "too_long",
                f"“{step.label}” took longer than {limit:.0f} s; make the plan's steps shorter.",
            ) from None
        if context.done:
            return
        await context.end_step()


async def _supervised(context: BuildContext, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` while the claim holds; cancel it, with its running command, when it does not."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_watch(context))
    try:
        done, _ = await asyncio.wait(
            {working, watching},
            timeout=context.settings.total_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if working in done:
        return await working
    if watching in done:
        return await watching
    raise BuildFailed(
        "too_long",
        f"The build took longer than {context.settings.total_s:.0f} s; make its steps shorter.",
    )


async def _watch(context: BuildContext) -> None:
    """Returns never: raises ClaimLost or BuildCancelled."""
    settings = context.settings
    loop = asyncio.get_running_loop()
    renewed_at = beat_at = loop.time()
    while True:
        await asyncio.sleep(settings.poll_s)
        if loop.time() - beat_at < settings.heartbeat_s:
            await in_db(context.claim.check)
            continue
        beat_at = loop.time()
        await in_db(context.claim.beat)
        try:
            if not await context.lock.renew():
                raise ClaimLost(context.build.pk)
            renewed_at = beat_at
        except SandboxError as error:
            if loop.time() - renewed_at > settings.stuck_after_s / 2:
                raise ClaimLost(context.build.pk) from error


def _items(build: Build) -> list[Item]:
    rows = build.items.select_related("version__skill", "plan")
    return [
        Item(
            skill_id=row.version.skill_id,
            name=row.version.skill.name,
            version=row.version,
            revision=row.plan,
            plan=row.plan.plan(),
        )
        for row in rows
    ]


def _is_anothers(claim: Claim) -> bool:
    """False if the build is over under our own claim: then its remains are ours to clear."""
    build = Build.objects.get(pk=claim.build_id)
    return not (build.attempt == claim.attempt and build.is_finished)
