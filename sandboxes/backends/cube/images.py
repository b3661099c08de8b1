"""Snapshots and templates. Cube keeps both in one list and deletes both by one route; here they are apart:
by the prefix of their ids, and by the list that snapshots have of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxes.backends.cube.control import OUTDATED, SNAPSHOT_PREFIX, CubeControl, not_found
from sandboxes.backends.e2b.images import as_build
from sandboxes.client import SnapshotStore, TemplateCatalog
from sandboxes.errors import Conflict, InvalidRequest, NotFound, TimedOut
from sandboxes.types import (
    SandboxState,
    SnapshotInfo,
    TemplateBuild,
    TemplateInfo,
    TemplateStatus,
)

if TYPE_CHECKING:
    from sandboxes.backends.cube.client import CubeClient

__all__ = ["CubeSnapshots", "CubeTemplates"]


class CubeSnapshots(SnapshotStore):
    """Names are labels there: only the id can be started from or deleted."""

    def __init__(self, client: CubeClient) -> None:
        self._client = client
        self._control = client.control

    async def create(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        try:
            return await self._take(sandbox_id, name)
        except Conflict:
            info = await self._client.look(sandbox_id, op="create snapshot")
            if info.state is not SandboxState.PAUSED:
                raise
        # This version takes none of a paused sandbox.
        await self._client.connect(sandbox_id)
        try:
            return await self._take(sandbox_id, name)
        finally:
            await self._client.pause(sandbox_id)

    async def _take(self, sandbox_id: str, name: str) -> SnapshotInfo:
        waiter = self._client.waiter(self._client.patience.busy_s)
        while True:
            try:
                return await self._control.create_snapshot(sandbox_id, name=name)
            except TimedOut:
                # It may have been made all the same; the name is the caller's own.
                async for snapshot in self._control.list_snapshots(sandbox_id=sandbox_id):
                    if name in snapshot.names:
                        return snapshot
                raise
            except Conflict as error:
                info = await self._client.look(sandbox_id, op="create snapshot")
                paused = info.state is SandboxState.PAUSED
                if paused or not await waiter.again(error.retry_after_s):
                    raise

    def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
        return self._control.list_snapshots(sandbox_id=sandbox_id)

    async def delete(self, snapshot_id: str) -> None:
        if not snapshot_id.startswith(SNAPSHOT_PREFIX):
            raise InvalidRequest(
                f"“{snapshot_id}” is no snapshot of Cube, whose ids start with {SNAPSHOT_PREFIX}; give "
                "the id, not the name.",
                provider=self._client.provider,
                op="delete snapshot",
            )
        await _delete(self._control, snapshot_id, op="delete snapshot")


class CubeTemplates(TemplateCatalog):
    def __init__(self, control: CubeControl) -> None:
        self._control = control

    async def list(self) -> AsyncIterator[TemplateInfo]:
        snapshots = {item.id async for item in self._control.list_snapshots(sandbox_id=None)}
        outdated = await self._control.outdated_templates()
        async for template in self._control.list_templates():
            if template.id.startswith(SNAPSHOT_PREFIX) or template.id in snapshots:
                continue
            if template.id in outdated and not template.error:
                yield replace(template, error=OUTDATED)
            else:
                yield template

    async def get(self, template_id: str) -> TemplateInfo:
        if template_id.startswith(SNAPSHOT_PREFIX):
            raise not_found(self._control, "get template", f"template “{template_id}”")
        try:
            return await self._control.get_template(template_id)
        except NotFound:
            raise not_found(
                self._control,
                "get template",
                f"template “{template_id}”",
                mend="make it from an image that carries envd (POST /templates, or the cluster's own pages), "
                "or choose another one",
            ) from None

    async def ensure(self, name: str, *, rebuild: bool = False) -> TemplateBuild:
        """Made from an image at the cluster; what is there can be rebuilt from here, as it was made."""
        info = await self.get(name)
        if not rebuild:
            return await self._build(name, info)
        await self._control.rebuild_template(info.id)
        return TemplateBuild(name=name, status=TemplateStatus.BUILDING, step="starting")

    async def build_status(self, name: str) -> TemplateBuild:
        return await self._build(name, await self.get(name))

    async def _build(self, name: str, info: TemplateInfo) -> TemplateBuild:
        job = await self._control.template_job(info.id)
        if job is not None and job.status is not TemplateStatus.READY:
            return replace(job, name=name)
        if not info.error and info.id in await self._control.outdated_templates():
            info = replace(info, error=OUTDATED)
        return as_build(name, info)

    async def delete(self, template_id: str) -> None:
        if template_id.startswith(SNAPSHOT_PREFIX):
            return
        await _delete(self._control, template_id, op="delete template")


async def _delete(control: CubeControl, image_id: str, *, op: str) -> None:
    try:
        await control.delete_image(image_id, op=op)
    except NotFound:
        return
    except TimedOut:
        try:
            await control.get_template(image_id, op=op)
        except NotFound:
            return
        raise
