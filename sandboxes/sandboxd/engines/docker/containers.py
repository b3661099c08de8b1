"""The containers of one data directory: made from an image that may have to be brought back first, found again,
and removed for good."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from sandboxes.errors import Conflict, NotFound
from sandboxes.sandboxd.engines.docker import container
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.records import ContainerRecord
from sandboxes.sandboxd.engines.docker.snapshots import SnapshotStore
from sandboxes.sandboxd.engines.docker.templates import TemplateImages

__all__ = ["Containers"]

_REMOVAL_LIMIT_S = 30.0


class Containers:
    """`key` tells ours from those of another sandboxd; `cgroup_parent` is empty where Docker's own default
    holds. Safe for concurrent use of different sandboxes."""

    def __init__(
        self,
        api: Api,
        snapshots: SnapshotStore,
        templates: TemplateImages,
        *,
        key: str,
        architecture: str,
        cgroup_parent: str,
    ) -> None:
        self._api = api
        self._snapshots = snapshots
        self._templates = templates
        self._key = key
        self._architecture = architecture
        self._cgroup_parent = cgroup_parent

    async def ours(self) -> dict[str, str]:
        """Ids of containers, by sandbox, that bear our label."""
        found = await self._api.containers(f"{container.HOST_LABEL}={self._key}")
        return {
            labels[container.SANDBOX_LABEL]: str(each["Id"])
            for each in found
            if container.SANDBOX_LABEL in (labels := each["Labels"])
        }

    async def with_image(self, record: ContainerRecord) -> ContainerRecord:
        """The record with the image that it starts from. InvalidRequest if there is none."""
        await self._snapshots.held(snapshot_id=record.image)
        snapshot = self._snapshots.find(record.image)
        if snapshot is not None:
            return dataclasses.replace(
                record,
                image_id=snapshot.image_id,
                template=snapshot.base_template_id,
                env=snapshot.env,
            )
        template = await self._templates.get(record.image)
        image_id = await self._templates.image_id(template, architecture=self._architecture)
        return dataclasses.replace(
            record, image_id=image_id, template=template.id, env=dict(template.env)
        )

    async def create(self, record: ContainerRecord, network: Mapping[str, Any]) -> ContainerRecord:
        """Made and not started; the record says of which image. `network` is the reach's part of it."""
        config = container.config(
            record, key=self._key, network=network, cgroup_parent=self._cgroup_parent
        )
        name = self._name(record.id)
        try:
            container_id = await self._api.create(name, config)
        except NotFound:
            record = dataclasses.replace(record, image_id=await self._restored_image(record))
            container_id = await self._api.create(name, {**config, "Image": record.image_id})
        return dataclasses.replace(record, container_id=container_id)

    async def _restored_image(self, record: ContainerRecord) -> str:
        """Somebody removed it from Docker."""
        snapshot = self._snapshots.find(record.image)
        if snapshot is not None:
            await self._snapshots.restore(snapshot)
            return snapshot.image_id
        template = await self._templates.get(record.image)
        return await self._templates.restore(template, architecture=self._architecture)

    async def remove(self, record: ContainerRecord) -> None:
        """Idempotent."""
        reference = record.container_id or self._name(record.id)
        try:
            await self._api.remove(reference)
        except Conflict:
            # Somebody else removes it at this moment.
            async with asyncio.timeout(_REMOVAL_LIMIT_S):
                while await self._exists(reference):  # noqa: ASYNC110 - it has no event for us
                    await asyncio.sleep(0.05)

    async def _exists(self, reference: str) -> bool:
        with contextlib.suppress(NotFound):
            await self._api.inspect(reference)
            return True
        return False

    def _name(self, sandbox_id: str) -> str:
        return f"skillyard-{self._key}-{sandbox_id}"
