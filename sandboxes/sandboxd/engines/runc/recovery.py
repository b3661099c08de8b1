"""What the start finds on the host: sandboxes to adopt, and what a crash left half made.

A sandbox's record is the first thing made and the last removed, so nearly everything is found by
it. What runc or the kernel knows under our name without a record is removed too.
"""

from __future__ import annotations

import dataclasses
import logging

from sandboxes.network import CLOSED
from sandboxes.sandboxd.engines.base import Limits
from sandboxes.sandboxd.engines.runc.groups import Groups
from sandboxes.sandboxd.engines.runc.records import Phase, SandboxRecord
from sandboxes.sandboxd.engines.runc.sandbox import Paths, RuncSandbox

__all__ = ["recover"]

_log = logging.getLogger(__name__)


def recover(paths: Paths, cgroups: Groups) -> dict[str, RuncSandbox]:
    """All sandboxes by id. Those in another phase than running are to be destroyed."""
    names = {entry.name for entry in paths.sandboxes.iterdir()}
    names |= cgroups.existing() | {entry.name for entry in paths.runc.iterdir()}
    found = {name: _look_at(name, paths, cgroups) for name in sorted(names)}
    for sandbox in found.values():
        _log.info("found sandbox %s, %s", sandbox.id, sandbox.record.phase)
    return found


def _look_at(name: str, paths: Paths, cgroups: Groups) -> RuncSandbox:
    try:
        record = SandboxRecord.load(paths.sandbox(name) / "engine.json")
    except (OSError, ValueError, KeyError, TypeError):
        record = _unknown(name)
    sandbox = RuncSandbox(record, paths, cgroups.of(name))
    if record.phase is Phase.RUNNING:
        if record.init_alive() and sandbox.cgroup.contains(record.init_pid):
            sandbox.hold_init()
        if sandbox.dead():
            sandbox.record = dataclasses.replace(record, phase=Phase.DESTROYING)
        elif sandbox.cgroup.frozen() and not record.paused:
            # A snapshot was being taken.
            sandbox.cgroup.thaw()
    return sandbox


def _unknown(name: str) -> SandboxRecord:
    return SandboxRecord(
        id=name,
        image="",
        template="",
        layers=(),
        env={},
        network=CLOSED,
        limits=Limits(),
        created_at=0,
        boot_id="",
        phase=Phase.DESTROYING,
    )
