"""What this sandboxd has laid for each sandbox, on disk before it is laid: after a crash the next
one finishes or removes it. The directory is on /run, so that a reboot clears records and
namespaces alike."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandboxes.network import NetworkPolicy

__all__ = ["Record", "Records"]


@dataclass(slots=True, kw_only=True)
class Record:
    """`slot` numbers the pair of addresses of a sandbox with a link; `proxy_port` is where its
    proxy listens, which its programs know from their environment and so never changes."""

    policy: NetworkPolicy
    slot: int | None = None
    proxy_port: int | None = None


@dataclass(slots=True)
class Records:
    directory: Path
    _all: dict[str, Record] = field(default_factory=dict)

    def load(self) -> None:
        """A record that a crash tore is none; its namespace is still found by `namespaces`."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self.directory.glob("*.json"):
            try:
                data = json.loads(path.read_text())
                policy = NetworkPolicy(
                    outbound=data["policy"]["outbound"],
                    inbound=data["policy"]["inbound"],
                    allow=tuple(data["policy"]["allow"]),
                    deny=tuple(data["policy"]["deny"]),
                )
                record = Record(policy=policy, slot=data["slot"], proxy_port=data["proxy_port"])
            except (ValueError, KeyError, TypeError):
                continue
            self._all[path.stem] = record

    def leave(self) -> None:
        """Remove the directory if nothing is in it. Idempotent."""
        try:
            self.directory.rmdir()
        except OSError:
            return  # sandboxes that keep running need it

    def on_disk(self) -> set[str]:
        """Every sandbox that left a record or a namespace, whole or not."""
        return {path.name.split(".")[0] for path in self.directory.iterdir()}

    def namespace(self, sandbox_id: str) -> Path:
        return self.directory / sandbox_id

    def get(self, sandbox_id: str) -> Record | None:
        return self._all.get(sandbox_id)

    def put(self, sandbox_id: str, record: Record) -> None:
        path = self.directory / f"{sandbox_id}.json"
        partial = path.with_suffix(".json.partial")
        partial.write_text(json.dumps(asdict(record)))
        os.replace(partial, path)
        self._all[sandbox_id] = record

    def remove(self, sandbox_id: str) -> None:
        for suffix in (".json", ".json.partial"):
            (self.directory / f"{sandbox_id}{suffix}").unlink(missing_ok=True)
        self._all.pop(sandbox_id, None)

    def slots(self) -> set[int]:
        return {record.slot for record in self._all.values() if record.slot is not None}
