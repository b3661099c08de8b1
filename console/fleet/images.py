"""The images at a backend's account: templates to start from, and snapshots, which are releases' or strangers'.

What is a snapshot is told in three ways: the backend keeps them apart, it lists them as snapshots, and our
own ledger names them. A template is deleted only if nothing of ours stands on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db.models import Q

from console.audit.services import Actor, record
from console.fleet.models import Backend
from console.tenants.models import Space
from sandboxes.errors import Conflict, InvalidRequest, Unsupported
from sandboxes.types import SnapshotInfo, TemplateInfo
from skills.models import Release, ReleaseState

__all__ = ["Images", "Template", "delete_template", "list_images"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    info: TemplateInfo
    dependents: list[str]
    """What stands on it, in words; empty if it may be deleted."""


@dataclass(slots=True, kw_only=True)
class Images:
    """`snapshots` with the release each belongs to, or None for a stranger's."""

    templates: list[Template] = field(default_factory=list)
    snapshots: list[tuple[SnapshotInfo, Release | None]] = field(default_factory=list)


async def list_images(backend: Backend) -> Images:
    """Raises what the provider raises."""
    async with await backend.open_client() as client:
        snapshots = [item async for item in client.snapshots.list()] if client.snapshots else []
        templates = [item async for item in client.templates.list()] if client.templates else []
    return await sync_to_async(_sorted)(backend, templates, snapshots)


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
            Template(info=item, dependents=dependents(backend, item))
            for item in templates
            if item.id not in listed and item.id not in ledger
        ],
        snapshots=[(item, ledger.get(item.id)) for item in snapshots],
    )


def dependents(backend: Backend, template: TemplateInfo) -> list[str]:
    """Releases whose snapshots stand on it, spaces that start from it, the backend's own default."""
    names = {template.id, *template.names}
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


async def delete_template(*, backend: Backend, template_id: str, actor: Actor) -> None:
    """Conflict, with names, while something of ours stands on it; InvalidRequest for a snapshot."""
    async with await backend.open_client() as client:
        if client.templates is None:
            raise Unsupported("This backend keeps no templates.", op="delete template")
        ours = Release.objects.filter(backend=backend, snapshot_id=template_id)
        if not template_id or await ours.aexists():
            raise InvalidRequest(
                "That is a release's snapshot; delete the release instead.", op="delete template"
            )
        info = await client.templates.get(template_id)
        if standing := await sync_to_async(dependents)(backend, info):
            raise Conflict(
                f"The template stays: {', '.join(standing[:10])} stand on it.", op="delete template"
            )
        await client.templates.delete(info.id)
    await sync_to_async(record)(
        actor=actor,
        action="template.delete",
        target=info.id,
        tenant_id=backend.tenant_id,
        details={"backend": backend.name, "names": list(info.names)},
    )
