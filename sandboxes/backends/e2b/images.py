"""Snapshots and templates over the E2B protocol, which deletes both by one route."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxes.client import SnapshotStore, TemplateCatalog
from sandboxes.errors import NotFound, Unsupported
from sandboxes.types import SnapshotInfo, TemplateBuild, TemplateInfo, TemplateStatus
from sandboxes.wire.client import WireClient

__all__ = ["Snapshots", "Templates", "as_build"]

_NAMES_SHOWN = 10


class Snapshots(SnapshotStore):
    def __init__(self, wire: WireClient) -> None:
        self._control = wire.control

    async def create(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        return await self._control.create_snapshot(sandbox_id, name=name)

    def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
        return self._control.list_snapshots(sandbox_id=sandbox_id)

    async def delete(self, snapshot_id: str) -> None:
        try:
            await self._control.delete_template(snapshot_id, op="delete snapshot")
        except NotFound:
            return


def as_build(name: str, info: TemplateInfo) -> TemplateBuild:
    """Where the server tells no more of a build than the template's own state."""
    ready = info.status is TemplateStatus.READY
    return TemplateBuild(
        name=name,
        status=info.status,
        fraction=1.0 if ready else None,
        error=info.error,
        template_id=info.id if ready else "",
    )


class Templates(TemplateCatalog):
    """Some servers list snapshots among the templates; they are taken out here. `sandboxd` builds the base
    itself; elsewhere templates are built with the provider's own tools."""

    def __init__(self, wire: WireClient, *, with_snapshots: bool, sandboxd: bool) -> None:
        self._control = wire.control
        self._service = wire.settings.service
        self._with_snapshots = with_snapshots
        self._sandboxd = sandboxd

    async def list(self) -> AsyncIterator[TemplateInfo]:
        snapshots: set[str] = set()
        if self._with_snapshots:
            async for snapshot in self._control.list_snapshots(sandbox_id=None):
                snapshots.add(snapshot.id)
        async for template in self._control.list_templates():
            if template.id not in snapshots:
                yield template

    async def get(self, template_id: str) -> TemplateInfo:
        names: list[str] = []
        async for template in self.list():
            if template_id == template.id or template_id in template.names:
                return template
            names += template.names or (template.id,)
        # Lists hold the account's own only, but others may be public.
        if not self._sandboxd and (found := await self._control.alias(template_id)) is not None:
            return TemplateInfo(
                id=found or template_id, names=(template_id,), status=TemplateStatus.READY
            )
        there = f"; there are: {', '.join(sorted(names)[:_NAMES_SHOWN])}" if names else ""
        mend = "" if self._sandboxd else "build it there with E2B's command line or SDK, or "
        raise NotFound(
            f"There is no template “{template_id}” at {self._service.place}{there}; {mend}choose another one.",
            provider=self._service.provider,
            op="get template",
        )

    async def ensure(self, name: str, *, rebuild: bool = False) -> TemplateBuild:
        if self._sandboxd:
            return await self._control.ensure_template(name, rebuild=rebuild)
        found = await self.build_status(name)
        if rebuild:
            raise Unsupported(
                f"“{name}” can't be built from here; build it with E2B's command line or SDK, under the "
                "same name.",
                provider=self._service.provider,
                op="ensure template",
            )
        return found

    async def build_status(self, name: str) -> TemplateBuild:
        if self._sandboxd:
            return await self._control.template_build(name)
        return as_build(name, await self.get(name))

    async def delete(self, template_id: str) -> None:
        try:
            await self._control.delete_template(template_id, op="delete template")
        except NotFound:
            return
