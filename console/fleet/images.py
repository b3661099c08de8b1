"""The images at a backend's account: templates to start from, and snapshots, which are releases' or strangers'.

What is a snapshot is told in three ways: the backend keeps them apart, it lists them as snapshots, and our
own ledger names them. A template is deleted only if nothing of ours stands on it. Nothing of a build is
kept here: the backend is asked how far it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from asgiref.sync import sync_to_async
from django.db.models import Q

from console.audit.services import Actor, record
from console.fleet.models import Backend
from console.tenants.models import Space
from sandboxes.client import SandboxClient, TemplateCatalog
from sandboxes.errors import Conflict, InvalidRequest, SandboxError, Unsupported
from sandboxes.types import SnapshotInfo, TemplateBuild, TemplateInfo, TemplateStatus
from skills.models import Release, ReleaseState

__all__ = [
    "Images",
    "NeededTemplate",
    "Template",
    "delete_template",
    "ensure_template",
    "list_images",
    "needed_templates",
    "template_status",
]

DEFAULT_TEMPLATE = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    info: TemplateInfo
    dependents: list[str]
    """What stands on it, in words; empty if it may be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededTemplate:
    """A template that spaces start from, or the backend's default, and how it is. `problem` says why nothing
    can start from it, with the mend; empty if it is there or on its way."""

    name: str
    users: list[str]
    build: TemplateBuild | None = None
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Images:
    """`snapshots` with the release each belongs to, or None for a stranger's. `may_build` says whether templates
    are made from here, and `note` what to know of it."""

    templates: list[Template] = field(default_factory=list)
    snapshots: list[tuple[SnapshotInfo, Release | None]] = field(default_factory=list)
    needed: list[NeededTemplate] = field(default_factory=list)
    may_build: bool = False
    note: str = ""

    @property
    def building(self) -> bool:
        builds = [needed.build for needed in self.needed if needed.build is not None]
        return any(build.status is TemplateStatus.BUILDING for build in builds)


async def list_images(backend: Backend) -> Images:
    """Raises what the provider raises."""
    async with await backend.open_client() as client:
        snapshots = [item async for item in client.snapshots.list()] if client.snapshots else []
        templates = [item async for item in client.templates.list()] if client.templates else []
        images = await sync_to_async(_sorted)(backend, templates, snapshots)
        images.needed = await _needed(client, backend)
        images.may_build = client.capabilities.template_builds
        images.note = client.capabilities.notes.get("template_builds", "")
    return images


def _sorted(
    backend: Backend, templates: list[TemplateInfo], snapshots: list[SnapshotInfo]
) -> Images:
    ledger = {
        row.snapshot_id: row
        for row in Release.objects.filter(backend=backend)
        .exclude(snapshot_id="")
        .exclude(state=ReleaseState.DELETED)
        .select_related("space")
    }
    listed = {item.id for item in snapshots}
    return Images(
        templates=[
            Template(info=item, dependents=dependents(backend, item, templates))
            for item in templates
            if item.id not in listed and item.id not in ledger
        ],
        snapshots=[(item, ledger.get(item.id)) for item in snapshots],
    )


async def needed_templates(*, backend: Backend) -> list[NeededTemplate]:
    """Each template that this backend's sandboxes are to start from. Raises what opening a client raises."""
    async with await backend.open_client() as client:
        return await _needed(client, backend)


async def _needed(client: SandboxClient, backend: Backend) -> list[NeededTemplate]:
    wanted = await sync_to_async(_wanted)(backend)
    return [await _look(client.templates, name, users) for name, users in wanted.items()]


def _wanted(backend: Backend) -> dict[str, list[str]]:
    """Who starts from which name."""
    found: dict[str, list[str]] = {}
    if default := str(backend.settings.get("template") or ""):
        found[default] = [backend.name]
    for space in Space.objects.filter(backend=backend).order_by("name"):
        found.setdefault(space.base_template, []).append(space.name)
    return found or {DEFAULT_TEMPLATE: []}


async def _look(templates: TemplateCatalog | None, name: str, users: list[str]) -> NeededTemplate:
    if templates is None:
        return NeededTemplate(name=name, users=users)
    try:
        build = await templates.build_status(name)
    except SandboxError as error:
        return NeededTemplate(name=name, users=users, problem=error.message)
    return NeededTemplate(name=name, users=users, build=build, problem=build.error)


async def template_status(*, backend: Backend, name: str) -> TemplateBuild:
    """How the template or its build is. NotFound, with the mend, if there is neither."""
    async with await backend.open_client() as client:
        return await _catalog(client, "template build").build_status(name)


async def ensure_template(
    *, backend: Backend, name: str, actor: Actor, rebuild: bool = False
) -> TemplateBuild:
    """Have the template built unless it is there, or a new version of it all the same. Returns at once;
    `template_status` tells how far it is. NotFound or Unsupported, with the mend, where it is made elsewhere."""
    if not name.strip():
        raise InvalidRequest("Name the template.", op="ensure template")
    async with await backend.open_client() as client:
        build = await _catalog(client, "ensure template").ensure(name.strip(), rebuild=rebuild)
    if build.status is TemplateStatus.BUILDING:
        await sync_to_async(record)(
            actor=actor,
            action="template.build",
            target=build.name,
            tenant_id=backend.tenant_id,
            details={"backend": backend.name, "rebuild": rebuild},
        )
    return build


def _catalog(client: SandboxClient, op: str) -> TemplateCatalog:
    if client.templates is None:
        raise Unsupported("This backend keeps no templates.", op=op)
    return client.templates


def dependents(
    backend: Backend, template: TemplateInfo, templates: list[TemplateInfo]
) -> list[str]:
    """Releases whose snapshots stand on it, spaces that start from it, the backend's own default. A name
    means the newest of the `templates` that have it."""
    names = {template.id}
    names.update(name for name in template.names if _newest(name, templates) == template.id)
    found = [
        f"{row.space} {row.generation}"
        for row in Release.objects.kept()
        .filter(Q(template_id__in=names), backend=backend)
        .select_related("space")
    ]
    spaces = Space.objects.filter(backend=backend, base_template__in=names)
    found += list(spaces.values_list("name", flat=True))
    if backend.settings.get("template") in names:
        found.append(backend.name)
    return found


def _newest(name: str, templates: list[TemplateInfo]) -> str:
    named = [item for item in templates if name in item.names]
    never = datetime.min.replace(tzinfo=UTC)
    return max(named, key=lambda item: item.created_at or never).id if named else ""


async def delete_template(*, backend: Backend, template_id: str, actor: Actor) -> None:
    """Conflict, with names, while something of ours stands on it; InvalidRequest for a snapshot."""
    async with await backend.open_client() as client:
        templates = _catalog(client, "delete template")
        ours = Release.objects.filter(backend=backend, snapshot_id=template_id)
        if not template_id or await ours.aexists():
            raise InvalidRequest(
                "That is a release's snapshot; delete the release instead.", op="delete template"
            )
        info = await templates.get(template_id)
        listed = [item async for item in templates.list()]
        if standing := await sync_to_async(dependents)(backend, info, listed):
            raise Conflict(
                f"The template stays: {', '.join(standing[:10])} stand on it.", op="delete template"
            )
        await templates.delete(info.id)
    await sync_to_async(record)(
        actor=actor,
        action="template.delete",
        target=info.id,
        tenant_id=backend.tenant_id,
        details={"backend": backend.name, "names": list(info.names)},
    )
