"""Snapshots: commits of containers, kept in Docker under our name and out of its prune's reach.

Docker's copy is what sandboxes start from. A container that is never started keeps it in use, which
`docker image prune --all` respects. It is made at once in the background; until then the sandbox that the
snapshot is of stays, so that a commit that a prune took can be made again. `docker system prune --all`
removes both, so a copy of our own is begun next (`archive.py`), which Docker finishes whatever is pruned
meanwhile, and loaded again when Docker's is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sandboxes.errors import Conflict, Internal, InvalidRequest, NotFound, SandboxError
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.archive import Archive, load_flat, write_stream
from sandboxes.sandboxd.engines.docker.container import HOST_LABEL, SANDBOX_LABEL, keeper_config
from sandboxes.sandboxd.engines.docker.records import ImageRecord
from sandboxes.sandboxd.engines.runc.waiting import outcome

__all__ = ["SnapshotStore"]

_log = logging.getLogger(__name__)

_LABEL = "skillyard.snapshot"
_REPOSITORY = "skillyard-snapshot"
_MAX_LAYERS = 100
_COMMITS = 3


class SnapshotStore:
    """`key` tells this sandboxd's images and containers from those of another."""

    def __init__(self, root: Path, api: Api, archive: Archive, *, key: str) -> None:
        self._root = root
        self._api = api
        self._archive = archive
        self._key = key
        self._known: dict[str, ImageRecord] = {}
        self._securing: dict[str, asyncio.Task[None]] = {}
        self._holding: dict[str, asyncio.Task[ImageRecord]] = {}
        self._restoring = asyncio.Lock()

    async def start(self, used: Collection[str]) -> None:
        """Load the records, remove what a crash left without one, go on copying. `used`: the ids of
        the images that sandboxes run on."""
        self._known = {}
        for path in self._root.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                record = ImageRecord.load(path)
                self._known[record.id] = record
        for image in await self._api.images(_LABEL):
            labels = image.get("Labels") or {}
            if labels.get(HOST_LABEL) == self._key and labels.get(_LABEL) not in self._known:
                await self._drop(labels[_LABEL], image["Id"])
        for container in await self._api.containers(f"{HOST_LABEL}={self._key}"):
            if (kept := container["Labels"].get(_LABEL)) and kept not in self._known:
                await self._api.remove(container["Id"])
        for record in self._known.values():
            if not record.archived and not record.deleted:
                self._secure_later(record.id)
        await self.collect(used)

    async def aclose(self) -> None:
        for snapshot_id in list(self._securing):
            await self._stop_securing(snapshot_id)

    async def held(self, *, snapshot_id: str = "", sandbox_id: str = "") -> None:
        """Returns when that snapshot, or every one of that sandbox, is out of an image prune's reach."""
        for known, holding in list(self._holding.items()):
            if known == snapshot_id or self._known[known].source_sandbox_id == sandbox_id:
                await asyncio.wait([holding])

    async def settled(self) -> None:
        """Returns when every snapshot made so far has its copy."""
        while self._securing:
            await asyncio.wait(self._securing.values())

    def all(self) -> list[ImageRecord]:
        return [record for record in self._known.values() if not record.deleted]

    def find(self, snapshot_id: str) -> ImageRecord | None:
        record = self._known.get(snapshot_id)
        return None if record is None or record.deleted else record

    async def take(self, container_id: str, record: ImageRecord) -> ImageRecord:
        """`record` lacks what Docker decides: image_id and size. All or nothing. Its container has to
        stay until it is `held`."""
        if record.id in self._known:
            raise Conflict(f"There is a snapshot {record.id} already; choose another id.")
        try:
            image = await self._commit(container_id, record)
            if len(image["RootFS"]["Layers"]) > _MAX_LAYERS:
                image = await self._flatten(record, image)
            record = dataclasses.replace(
                record, image_id=image["Id"], size_bytes=await self._own_bytes(image)
            )
            record.save(self._path(record.id))
        except BaseException:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self._drop(record.id, f"{_REPOSITORY}:{record.id}"))
            raise
        self._known[record.id] = record
        self._secure_later(record.id, source=container_id)
        return record

    async def _commit(self, container_id: str, record: ImageRecord) -> Mapping[str, Any]:
        """One that a prune took at once is made again."""
        labels = {
            HOST_LABEL: self._key,
            _LABEL: record.id,
            SANDBOX_LABEL: record.source_sandbox_id,
            "skillyard.template": record.base_template_id,
        }
        for _ in range(_COMMITS):
            image_id = await self._api.commit(
                container_id, repository=_REPOSITORY, tag=record.id, config={"Labels": labels}
            )
            if (image := await self._api.image(image_id)) is not None:
                return image
        raise _lost(record.id)

    async def _hold(self, record: ImageRecord, source: str | None) -> ImageRecord:
        """Keep it in use. `source` is the container to make it from again if a prune took it."""
        for _ in range(_COMMITS):
            try:
                await self._keep(record)
            except NotFound:
                if source is None:
                    raise
            else:
                return record
            image = await self._commit(source, record)
            record = self._change(record.id, image_id=image["Id"])
        raise _lost(record.id)

    async def restore(self, record: ImageRecord) -> None:
        """Bring Docker's copy back from ours. InvalidRequest if there is none."""
        async with self._restoring:
            if await self._api.image(record.image_id) is not None:
                return
            if not self._archive.holds(record.image_id):
                raise InvalidRequest(
                    f"The image of snapshot {record.id} was removed from Docker before it was "
                    "copied; delete the snapshot and make it again."
                )
            _log.warning("snapshot %s was gone from Docker; loading our copy", record.id)
            tag = f"{_REPOSITORY}:{record.id}"
            await self._archive.load(self._api, record.image_id, tag=tag)
            await self._keep(record)

    async def delete(self, snapshot_id: str, used: Collection[str]) -> None:
        """Idempotent. Its files stay while something stands on them."""
        record = self._known.get(snapshot_id)
        if record is not None and not record.deleted:
            await self._stop_securing(snapshot_id)
            self._change(snapshot_id, deleted=True)
            await self.collect(used)

    async def collect(self, used: Collection[str]) -> None:
        """Free the deleted ones that nobody stands on any more."""
        if not any(record.deleted for record in self._known.values()):
            return
        # The newest first: an older one may be what it stands on.
        for record in sorted(self._known.values(), key=lambda r: r.created_at, reverse=True):
            if not record.deleted:
                continue
            gone = await self._drop(record.id, record.image_id)
            if gone and record.image_id not in used:
                del self._known[record.id]
                self._path(record.id).unlink(missing_ok=True)
        kept = {record.image_id for record in self.all()}
        await asyncio.to_thread(self._archive.forget_all_but, kept)

    def standing_on(self, template_id: str) -> list[str]:
        return sorted(
            record.id for record in self._known.values() if record.base_template_id == template_id
        )

    async def _drop(self, snapshot_id: str, image: str) -> bool:
        await self._api.remove(self._keeper(snapshot_id))
        await self._api.delete_image(f"{_REPOSITORY}:{snapshot_id}", untag=True)
        return await self._api.delete_image(image)

    async def _secure(self, snapshot_id: str, holding: asyncio.Task[ImageRecord]) -> None:
        """Make it safe from a prune, and from Docker as a whole."""
        try:
            record = await outcome(holding)
            await self._archive.save(self._api, record.image_id)
        except (SandboxError, OSError):
            _log.exception(
                "snapshot %s could not be copied; the next start tries again", snapshot_id
            )
            return
        if self.find(snapshot_id) is not None:
            self._change(snapshot_id, archived=True)

    async def _keep(self, record: ImageRecord) -> None:
        config = keeper_config(record.image_id, key=self._key, label=_LABEL, value=record.id)
        with contextlib.suppress(Conflict):  # it is there already
            await self._api.create(self._keeper(record.id), config)

    async def _own_bytes(self, image: Mapping[str, Any]) -> int:
        """What it adds to the image that it stands on."""
        parent = await self._api.image(image["Parent"]) if image.get("Parent") else None
        return int(image["Size"]) - int(parent["Size"] if parent else 0)

    async def _flatten(self, record: ImageRecord, image: Mapping[str, Any]) -> dict[str, Any]:
        """The same files in one layer: a mount takes no more than 128."""
        tag = f"{_REPOSITORY}:{record.id}"
        config = {
            "architecture": image["Architecture"],
            "created": image["Created"],
            "config": {"Labels": image["Config"]["Labels"]},
            "history": [{"created": image["Created"], "created_by": f"snapshot {record.id}"}],
        }
        await self._keep(dataclasses.replace(record, image_id=image["Id"]))
        try:
            with tempfile.TemporaryDirectory(dir=self._root, prefix=".flat-") as work:
                layer = Path(work, "layer.tar")
                async with self._api.export_files(self._keeper(record.id)) as content:
                    await write_stream(layer, content)
                flat = await load_flat(self._api, layer, config, tag=tag)
        finally:
            await self._api.remove(self._keeper(record.id))
        await self._keep(dataclasses.replace(record, image_id=flat))
        await self._api.delete_image(image["Id"])
        found = await self._api.image(flat)
        if found is None:
            raise Internal(f"Docker lost the image of snapshot {record.id}; make it again.")
        return found

    def _change(self, snapshot_id: str, **changes: Any) -> ImageRecord:
        record = dataclasses.replace(self._known[snapshot_id], **changes)
        record.save(self._path(snapshot_id))
        self._known[snapshot_id] = record
        return record

    def _path(self, snapshot_id: str) -> Path:
        return self._root / f"{snapshot_id}.json"

    def _keeper(self, snapshot_id: str) -> str:
        return f"skillyard-{self._key}-{snapshot_id}"

    def _secure_later(self, snapshot_id: str, *, source: str | None = None) -> None:
        holding = asyncio.create_task(
            self._hold(self._known[snapshot_id], source), name=snapshot_id
        )
        self._holding[snapshot_id] = holding
        holding.add_done_callback(self._is_held)
        task = asyncio.create_task(self._secure(snapshot_id, holding))
        self._securing[snapshot_id] = task
        task.add_done_callback(lambda _: self._securing.pop(snapshot_id, None))

    def _is_held(self, holding: asyncio.Task[ImageRecord]) -> None:
        del self._holding[holding.get_name()]
        if not holding.cancelled():
            holding.exception()  # retrieved: `_secure` may have been stopped before it could log it

    async def _stop_securing(self, snapshot_id: str) -> None:
        await self.held(snapshot_id=snapshot_id)
        if (task := self._securing.get(snapshot_id)) is not None:
            task.cancel()
            await asyncio.wait([task])


def _lost(snapshot_id: str) -> Internal:
    return Internal(
        f"Docker lost the image of snapshot {snapshot_id} as soon as it was made; stop what prunes it, "
        "and make the snapshot again."
    )
