"""The point of no return: the space's pointer, the old release's state and the build's outcome change in
one transaction, if the backend is still the account that the snapshot lives in."""

from __future__ import annotations

from django.db import transaction

from sandboxes.errors import Conflict
from skills.build import ledger
from skills.build.claim import close_step, end
from skills.build.context import BuildContext, in_db
from skills.build.failures import BuildFailed
from skills.models import Build, BuildState, BuildStep, PromotionKind, Release
from skills.ports import SYSTEM, Actor

__all__ = ["finish_by_clearing", "finish_by_switching", "run"]


async def run(context: BuildContext) -> None:
    if context.done:
        return
    release = await in_db(lambda: Release.objects.get(build=context.build))
    await finish_by_switching(context, release, kind=PromotionKind.BUILD)


async def finish_by_switching(
    context: BuildContext, release: Release, *, kind: PromotionKind
) -> None:
    await context.still_mine()
    await in_db(_switch, context, release, kind)
    context.done = True
    context.log.say(f"Release {release.generation} serves new sessions now.")


async def finish_by_clearing(context: BuildContext) -> None:
    await context.still_mine()
    await in_db(_clear, context)
    context.done = True


def _switch(context: BuildContext, release: Release, kind: PromotionKind) -> None:
    with transaction.atomic():
        build = context.claim.locked()
        try:
            if build.rollout_percent is None:
                ledger.switch(release, kind=kind, actor=_actor(build), reason=build.note)
            else:
                ledger.set_candidate(
                    release,
                    percent=build.rollout_percent,
                    sessions=build.rollout_sessions,
                    actor=_actor(build),
                    reason=build.note,
                )
        except Conflict as error:
            raise BuildFailed("not_switched", str(error)) from error
        if kind == PromotionKind.REUSE:
            build.reused_release = release
        _succeed(build)


def _clear(context: BuildContext) -> None:
    with transaction.atomic():
        build = context.claim.locked()
        ledger.clear(build.space_id, actor=_actor(build), reason=build.note)
        _succeed(build)


def _succeed(build: Build) -> None:
    close_step(build, ok=True)
    build.step = BuildStep.SWITCH
    end(build, BuildState.SUCCEEDED)


def _actor(build: Build) -> Actor:
    return Actor(name="build", user_id=build.created_by_id) if build.created_by_id else SYSTEM
