"""What a client calls an image, and what the backend does: releases, base templates, its own snapshots.

A space's releases are `release-N`; `default`, `base` and `current` are the current one. A snapshot is
known in the space that made it and in no other. Whatever else exists at the provider has no name here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from console.fleet.sessions import sandbox_plan, session_key
from console.gateway.caller import Caller
from console.gateway.models import GatewaySnapshot
from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.sessions import ReleaseImage, SandboxPlan
from sandboxes.types import TemplateInfo
from skills.models import Release

__all__ = ["CURRENT_NAMES", "Image", "bare_name", "find", "plan_for", "release_name"]

CURRENT_NAMES = ("default", "base", "current")
_TAGS = ("", "default", "latest")
_RELEASE = re.compile(r"release-([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`name` is the client's word for it, `template` the provider's."""

    name: str
    template: str
    release: Release | None = None


def release_name(release: Release) -> str:
    return f"release-{release.generation}"


def bare_name(reference: str) -> str:
    """Of `namespace/name:tag`; empty for a tag that nothing has here."""
    name, _, tag = reference.rpartition("/")[2].partition(":")
    return name if tag in _TAGS else ""


async def find(caller: Caller, reference: str) -> Image | None:
    """None if the space has no such image."""
    name = bare_name(reference)
    if name in CURRENT_NAMES:
        return await _current(caller)
    if match := _RELEASE.fullmatch(name):
        release = await Release.objects.filter(
            space=caller.space, generation=int(match[1])
        ).afirst()
        if release is None or not release.usable_on(caller.space.backend):
            return None
        return Image(name=name, template=release.snapshot_id, release=release)
    if name and (snapshot := await _snapshot(caller, name)):
        return Image(name=snapshot.snapshot_id, template=snapshot.snapshot_id)
    if name and (template := await _template(caller, name)):
        return Image(name=template.id, template=template.id)
    return None


async def plan_for(caller: Caller, reference: str, session_id: str) -> tuple[Image, SandboxPlan]:
    """What a new sandbox is made of. InvalidRequest with status 404 if there is no such image."""
    key = session_key(caller.space, session_id)
    plan = await sandbox_plan(key, pause_on_idle=False)
    if bare_name(reference) in CURRENT_NAMES:
        return await _of_plan(plan), plan
    image = await find(caller, reference)
    if image is None:
        raise InvalidRequest(
            f"Template “{reference}” not found; GET /templates lists those of this space",
            op="create",
            status=404,
        )
    release = None
    if image.release is not None:
        release = ReleaseImage(
            id=image.release.pk,
            snapshot=image.release.snapshot_id,
            fingerprint=image.release.fingerprint,
        )
    return image, replace(plan, base_template=image.template, release=release)


async def _current(caller: Caller) -> Image:
    # No session in particular: a candidate that only some sessions get does not count.
    release = caller.space.current_release
    if release is not None and release.usable_on(caller.space.backend):
        return Image(name=release_name(release), template=release.snapshot_id, release=release)
    base = caller.space.base_template
    template = await _template(caller, base)
    return Image(name=template.id if template else base, template=template.id if template else base)


async def _of_plan(plan: SandboxPlan) -> Image:
    if not plan.release_id:
        return Image(name=plan.base_template, template=plan.template)
    release = await Release.objects.aget(pk=plan.release_id)
    return Image(name=release_name(release), template=plan.template, release=release)


async def _snapshot(caller: Caller, name: str) -> GatewaySnapshot | None:
    """By id, or the newest of that name."""
    mine = GatewaySnapshot.objects.filter(space=caller.space, backend=caller.space.backend)
    found = await mine.filter(snapshot_id=name).afirst()
    return found or await mine.filter(name=name).order_by("-created_at").afirst()


async def _template(caller: Caller, name: str) -> TemplateInfo | None:
    if caller.client.templates is None:
        return None
    try:
        return await caller.client.templates.get(name)
    except NotFound:
        return None
