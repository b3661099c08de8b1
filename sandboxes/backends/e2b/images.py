"""Snapshots and templates over the E2B protocol, which deletes both by one route."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxes.client import (
    SnapshotStore,
    TemplateCatalog,
)
from sandboxes.errors import NotFound
from sandboxes.types import (
    SnapshotInfo,
    TemplateInfo,
)
from sandboxes.wire.client import WireClient

__all__ = ["Snapshots", "Templates"]


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


class Templates(TemplateCatalog):
    """Some servers list snapshots among the templates; they are taken out here."""

    def __init__(self, wire: WireClient, *, with_snapshots: bool) -> None:
        self._control = wire.control
        self._service = wire.settings.service
        self._with_snapshots = with_snapshots

    async def list(self) -> AsyncIterator[TemplateInfo]:
        snapshots: set[str] = set()
        if self._with_snapshots:
            async for snapshot in self._control.list_snapshots(sandbox_id=None):
                snapshots.add(snapshot.id)
        async for template in self._control.list_templates():
            if template.id not in snapshots:
                yield template

    async def get(self, template_id: str) -> TemplateInfo:
        async for template in self.list():
            if template_id == template.id or template_id in template.names:
                return template
        raise NotFound(
            f"There is no template “{template_id}” at {self._service.place}; choose another one.",
            provider=self._service.provider,
            op="get template",
        )

    async def delete(self, template_id: str) -> None:
        try:
            await self._control.delete_template(template_id, op="delete template")
        except NotFound:
            return
