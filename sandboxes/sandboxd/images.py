"""Names of templates and snapshots: what a `templateID` means, and what clients see of both."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.sandboxd.engines.base import Engine, SnapshotRecord, TemplateRecord
from sandboxes.sandboxd.ids import new_snapshot_id
from sandboxes.sandboxd.records import SnapshotNames
from sandboxes.sandboxd.store import Store

__all__ = ["Images", "NamedSnapshot"]

_TAGS = ("default", "latest")
"""The tags that every name has; a name's newest image is what both mean."""


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    record: SnapshotRecord
    name: str | None


class Images:
    """The engine owns the images; the names of snapshots are ours."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._snapshots: dict[str, SnapshotRecord] = {}
        self._names: dict[str, str] = {}

    async def start(self, names: list[SnapshotNames]) -> None:
        self._snapshots = {record.id: record for record in await self._engine.snapshots()}
        for stored in names:
            if stored.id in self._snapshots:
                self._names[stored.id] = stored.name
            else:
                await self._store.delete_snapshot(stored.id)

    async def templates(self) -> list[TemplateRecord]:
        """Newest first."""
        found = await self._engine.templates()
        return sorted(found, key=lambda template: template.created_at, reverse=True)

    def snapshots(self) -> list[NamedSnapshot]:
        """Newest first."""
        found = sorted(self._snapshots.values(), key=lambda s: (s.created_at, s.id), reverse=True)
        return [NamedSnapshot(record, self._names.get(record.id)) for record in found]

    async def resolve(self, reference: str) -> str:
        """The id of the image that a templateID names: an id, or a name for its newest image, with
        an optional namespace and tag. InvalidRequest if there is none."""
        found = await self.find(reference)
        if not found:
            raise InvalidRequest(
                f"Template “{reference}” not found; GET /templates lists those that exist",
                status=404,
            )
        return found[0]

    async def find(self, reference: str) -> list[str]:
        """Every image that a reference may mean, the one it means first."""
        name = _untagged(reference)
        if name is None:
            return []
        if name in self._snapshots:
            return [name]
        templates = await self.templates()
        by_id = [template.id for template in templates if template.id == name]
        named = [template.id for template in templates if template.name == name]
        labelled = [found.record.id for found in self.snapshots() if found.name == name]
        return by_id or named or labelled

    async def snapshot(self, sandbox_id: str, name: str | None) -> NamedSnapshot:
        """Take one of a sandbox whose lifecycle the caller holds."""
        if name and (await self._engine_template_named(name)):
            raise InvalidRequest(f"“{name}” is the name of a template; choose another name")
        record = await self._engine.snapshot(sandbox_id, new_snapshot_id())
        if name:
            await self._store.put_snapshot(SnapshotNames(id=record.id, name=name))
            self._names[record.id] = name
        self._snapshots[record.id] = record
        return NamedSnapshot(record, name or None)

    async def delete(self, reference: str) -> None:
        """A snapshot or a template, by id or by a snapshot's name. NotFound if there is none;
        Conflict while sandboxes stand on a template."""
        name = _untagged(reference)
        snapshot = next(
            (s for s in self.snapshots() if name and name in (s.record.id, s.name)), None
        )
        if snapshot is not None:
            await self._engine.delete_snapshot(snapshot.record.id)
            await self._store.delete_snapshot(snapshot.record.id)
            self._snapshots.pop(snapshot.record.id, None)
            self._names.pop(snapshot.record.id, None)
            return
        if any(template.id == name for template in await self.templates()):
            await self._engine.delete_template(name or "")
            return
        raise NotFound(f"Template “{reference}” not found")

    async def _engine_template_named(self, name: str) -> bool:
        return any(name in (template.id, template.name) for template in await self.templates())


def _untagged(reference: str) -> str | None:
    """The bare name of `namespace/name:tag`; None for a tag that no image here has."""
    name, _, tag = reference.rpartition("/")[2].partition(":")
    return name if not tag or tag in _TAGS else None
