"""Decide what to build from, and start the sandbox, unless an identical release exists."""

from __future__ import annotations

import asyncio

from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.sessions.keys import (
    SCHEMA_VERSION,
    TAG_BACKEND,
    TAG_BUILD,
    TAG_SCHEMA,
    TAG_SPACE,
    TAG_TENANT,
)
from sandboxes.types import CreateRequest, TimeoutPolicy
from skills.build import ledger
from skills.build.context import BuildContext, in_db
from skills.build.failures import BuildFailed
from skills.build.snapshots import snapshot_exists, store_of
from skills.build.start import MAX_DEPTH, Start, choose_start, inputs_digest
from skills.build.steps.switch import finish_by_clearing, finish_by_switching
from skills.models import BuildTrigger, PromotionKind, Release

__all__ = ["run"]

_TRIES = 4


async def run(context: BuildContext) -> None:
    build, space = context.build, context.space
    if context.sandbox is not None:
        return
    store_of(context.client)
    if not context.items:
        context.log.say("The space has no skill left: it serves its base template.")
        await finish_by_clearing(context)
        return
    space.backend.require_open()
    build.fingerprint = await in_db(lambda: space.backend.fingerprint)
    build.template_id = await _template_id(context)
    build.inputs_digest = inputs_digest(build.template_id, context.items)
    if await _reuse(context):
        return
    start = await in_db(_choose, context)
    await _begin(context, start)
    context.log.say(start.why)
    try:
        await _create(context, start)
    except (InvalidRequest, NotFound) as error:
        parent = start.parent
        if parent is None or await snapshot_exists(context.client, parent):
            raise
        await in_db(ledger.mark_broken, parent, problem="Its snapshot is gone from the provider.")
        context.log.say(f"Release {parent.generation} is gone from the provider ({error}).")
        start = await in_db(_choose, context)
        await _begin(context, start)
        context.log.say(start.why)
        await _create(context, start)


async def _template_id(context: BuildContext) -> str:
    """What the base template's name stands for now, where the backend can tell."""
    name = context.space.base_template
    if context.client.templates is None:
        return name
    try:
        return (await context.client.templates.get(name)).id
    except NotFound as error:
        raise BuildFailed(
            "template_missing",
            f"The base template “{name}” does not exist on the backend “{context.space.backend.name}”; "
            "choose another in the space's settings.",
        ) from error


async def _reuse(context: BuildContext) -> bool:
    """Switch to a release of the same inputs in the same account, if its snapshot still exists: one of the
    space's own, or a new one upon the snapshot of another space of the tenant."""
    build = context.build
    if build.from_base or build.trigger != BuildTrigger.CHANGE:
        return False
    for release in await in_db(_identical, context):
        if not await snapshot_exists(context.client, release):
            await in_db(
                ledger.mark_broken, release, problem="Its snapshot is gone from the provider."
            )
            continue
        if release.space_id == build.space_id:
            context.log.say(
                f"Release {release.generation} was built from the same skills, plans and base: it is "
                "used again."
            )
            await finish_by_switching(context, release, kind=PromotionKind.REUSE)
            return True
        await _note(context)
        await context.still_mine()
        own = await in_db(ledger.adopt, build, release)
        if own is not None:
            context.log.say(
                "Another space of the tenant has a release of the same skills, plans and base: its "
                f"snapshot serves as release {own.generation} here."
            )
            await finish_by_switching(context, own, kind=PromotionKind.BUILD)
            return True
    return False


def _identical(context: BuildContext) -> list[Release]:
    """Of the space itself first, newest first."""
    kept = Release.objects.kept().filter(
        space__tenant=context.space.tenant_id,
        inputs_digest=context.build.inputs_digest,
        fingerprint=context.build.fingerprint,
        backend_id=context.space.backend_id,
        delete_requested_at=None,
    )
    found = list(kept.order_by("-activated_at"))
    return sorted(found, key=lambda release: release.space_id != context.space.pk)


def _choose(context: BuildContext) -> Start:
    space = context.space
    release = space.current_release
    if release is not None:
        release.refresh_from_db()
    carried = (
        list(release.items.select_related("version__skill", "plan")) if release is not None else []
    )
    depth, above = 0, release
    while above is not None and depth <= MAX_DEPTH:
        depth, above = depth + 1, above.parent
    return choose_start(
        space=space,
        template_id=context.build.template_id,
        items=context.items,
        carried=carried,
        depth=depth,
        from_base=context.build.from_base,
    )


async def _begin(context: BuildContext, start: Start) -> None:
    build = context.build
    build.parent = start.parent
    context.install, context.remove = list(start.install), list(start.remove)
    context.kept_python, context.kept_node = start.kept_python, start.kept_node
    await _note(context)


async def _note(context: BuildContext) -> None:
    """Write down what the build stands on: the ledger's row is made from it."""
    build = context.build
    await in_db(
        context.claim.update,
        parent=build.parent,
        template_id=build.template_id,
        fingerprint=build.fingerprint,
        inputs_digest=build.inputs_digest,
    )


async def _create(context: BuildContext, start: Start) -> None:
    space, settings = context.space, context.settings
    policy = settings.policy(context.client.capabilities)
    if settings.registries and policy.outbound:
        context.log.say("This backend can't limit builds to the registries: outbound is open.")
    request = CreateRequest(
        template=start.parent.snapshot_id if start.parent else context.build.template_id,
        network=policy,
        timeout=TimeoutPolicy(timeout_s=settings.sandbox_s),
        metadata={
            TAG_TENANT: space.tenant_id,
            TAG_SPACE: space.pk,
            TAG_BUILD: context.build.pk,
            TAG_BACKEND: space.backend_id,
            TAG_SCHEMA: SCHEMA_VERSION,
        },
    )
    for attempt in range(1, _TRIES + 1):
        await context.still_mine()
        try:
            context.sandbox = await context.client.create(request)
            break
        except SandboxError as error:
            if not error.retryable or attempt == _TRIES:
                raise
            pause = min(error.retry_after_s or 2.0**attempt, 30.0)
            context.log.say(f"{error} Trying again in {pause:.0f} s.")
            await asyncio.sleep(pause)
    await in_db(context.claim.update, sandbox_id=context.live.id)
