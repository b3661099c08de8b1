"""A tenant with a space on a backend, skills made on the spot, and builds run in this process."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync

from console.fleet.models import Backend
from console.tenants.models import Space, Tenant
from skills import services
from skills.build import pipeline
from skills.build.settings import BuildSettings
from skills.models import Build, BuildLogLine, SkillVersion
from skills.package import UploadedFile
from skills.plan import Plan, Step, StepKind
from skills.ports import Actor

ACTOR = Actor(name="tester")
SETTINGS = BuildSettings(poll_s=0.05, heartbeat_s=0.2)


def make_space(provider: str = "simulated", **settings: Any) -> Space:
    """A new space on a new backend of a new tenant."""
    number = Tenant.objects.count() + 1
    tenant = Tenant.objects.create(slug=f"tenant-{number}", name=f"Tenant {number}")
    backend = Backend.objects.create(
        tenant=tenant, name="backend", provider=provider, settings=settings, secrets={}
    )
    return Space.objects.create(tenant=tenant, slug="space", name="Space", backend=backend)


def add_skill(
    space: Space,
    name: str = "report",
    files: Mapping[str, str] | None = None,
    steps: Mapping[StepKind, list[str]] | None = None,
) -> SkillVersion:
    """Upload a skill; `steps` replaces the plan that reading finds."""
    head = f"---\nname: {name}\ndescription: Makes a {name} when asked.\n---\n# {name}\n"
    contents = {"SKILL.md": head, **(files or {})}
    source = [
        UploadedFile(f"{name}/{path}", textwrap.dedent(text).encode())
        for path, text in contents.items()
    ]
    version = services.add_package(tenant=space.tenant, source=source, actor=ACTOR)
    if steps is not None:
        made = Plan(tuple(Step(kind, tuple(items), "admin", "") for kind, items in steps.items()))
        services.save_plan(version=version, plan=made, actor=ACTOR)
    return version


def run(build: Build, settings: BuildSettings = SETTINGS) -> Build:
    """Run a build as a worker would, and read its row again."""
    async_to_sync(pipeline.run)(build.pk, settings=settings)
    return Build.objects.get(pk=build.pk)


def install(space: Space, *versions: SkillVersion, **options: Any) -> Build:
    """Ask for a build that adds the versions, and run it."""
    fresh = Space.objects.get(pk=space.pk)
    return run(services.request_build(space=fresh, actor=ACTOR, add=versions, **options))


def log_of(build: Build) -> str:
    return "\n".join(BuildLogLine.objects.filter(build=build).values_list("text", flat=True))
