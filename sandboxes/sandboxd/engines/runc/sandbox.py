"""One sandbox on this host: its folder, its mounts, its container, step by step.

    sandboxes/<id>/engine.json          the record, written first and removed last
                   upper/ work/         the overlay's own layer
                   merged/              where it is mounted
                   bundle/config.json   what runc is told

The folder is open to root and to the sandbox's own root alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandboxes.errors import Conflict, NotFound, Terminal
from sandboxes.sandboxd.engines.runc import overlay
from sandboxes.sandboxd.engines.runc.bundle import ID_OFFSET
from sandboxes.sandboxd.engines.runc.commands import command
from sandboxes.sandboxd.engines.runc.groups import ExecGroup, SandboxGroup
from sandboxes.sandboxd.engines.runc.records import Phase, SandboxRecord, process_start
from sandboxes.sandboxd.engines.runc.trash import Trash

__all__ = ["Paths", "RuncSandbox"]


@dataclasses.dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one data directory."""

    data: Path
    mounts: Path | None = None
    """Where the roots are mounted, if not in the sandboxes' own folders."""

    @property
    def sandboxes(self) -> Path:
        return self.data / "sandboxes"

    @property
    def snapshots(self) -> Path:
        return self.data / "snapshots"

    @property
    def trash(self) -> Path:
        return self.data / "trash"

    @property
    def runc(self) -> Path:
        """runc's own state."""
        return self.data / "runc"

    @property
    def lock(self) -> Path:
        return self.data / "engine.lock"

    @property
    def spawner(self) -> Path:
        return self.data / "spawner.json"

    def sandbox(self, sandbox_id: str) -> Path:
        return self.sandboxes / sandbox_id

    def merged(self, sandbox_id: str) -> Path:
        if self.mounts is not None:
            return self.mounts / sandbox_id
        return self.sandbox(sandbox_id) / "merged"


class RuncSandbox:
    def __init__(self, record: SandboxRecord, paths: Paths, cgroup: SandboxGroup) -> None:
        self.record = record
        self.cgroup = cgroup
        self.changing = asyncio.Lock()
        """Held by whatever changes the sandbox as a whole."""
        self.proxy_env: dict[str, str] = {}
        self.cpu_sample: tuple[float, float] | None = None
        self._folder = paths.sandbox(record.id)
        self._merged = paths.merged(record.id)
        self._runc = ("runc", "--root", paths.runc)
        self._init: int | None = None
        self._lingering: set[ExecGroup] = set()
        """Groups of commands that ended, with children still running, as far as is known."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def upper(self) -> Path:
        return self._folder / "upper"

    @property
    def merged(self) -> Path:
        return self._merged

    def save(self, **changes: Any) -> None:
        self.record = dataclasses.replace(self.record, **changes)
        self.record.save(self._folder / "engine.json")

    # Making

    def make_folder(self) -> None:
        """FileExistsError if it is there."""
        self._folder.mkdir(mode=0o710)
        os.chown(self._folder, 0, ID_OFFSET)
        self.save()

    def make_upper(self, files: dict[str, str]) -> None:
        """`files`: path below /etc to content. Laid into the upper layer before it is mounted, so
        that no link of the image is ever followed."""
        for name in ("upper", "work", "bundle"):
            (self._folder / name).mkdir(mode=0o755)
        self.merged.mkdir(mode=0o755)
        etc = self.upper / "etc"
        etc.mkdir(mode=0o755)
        for name, text in files.items():
            (etc / name).write_text(text)
            (etc / name).chmod(0o644)
            os.chown(etc / name, ID_OFFSET, ID_OFFSET)
        for folder in (self.upper, etc):
            os.chown(folder, ID_OFFSET, ID_OFFSET)

    async def mount(self, layers: Sequence[Path], *, rootless: bool = False) -> None:
        await overlay.mount(
            self.merged,
            layers=layers,
            upper=self.upper,
            work=self._folder / "work",
            rootless=rootless,
        )

    async def run(self, config: dict[str, Any]) -> None:
        bundle = self._folder / "bundle"
        (bundle / "config.json").write_text(json.dumps(config))
        pid_file = bundle / "init.pid"
        # A keyring each would run into the quota of the one host account that all sandboxes' roots
        # are: 200 of them. They share the empty one that the engine has made for itself.
        await command(
            *(*self._runc, "run", "--detach", "--no-new-keyring"),
            *("--bundle", bundle, "--pid-file", pid_file, self.id),
        )
        pid = int(pid_file.read_text())
        self.save(phase=Phase.RUNNING, init_pid=pid, init_start=process_start(pid))
        self.hold_init()

    # Living

    def hold_init(self) -> None:
        """Keep a handle on the init that no other process can ever take over."""
        try:
            pidfd = os.pidfd_open(self.record.init_pid)
        except ProcessLookupError:
            return
        if not self.record.init_alive():
            os.close(pidfd)
            return
        self._init = pidfd
        self.cgroup.attach(self.record.init_pid)
        self._lingering = set(self.cgroup.execs())

    @property
    def init_pidfd(self) -> int:
        """Terminal if the init is gone."""
        if self.record.phase is Phase.CREATING:
            raise Conflict(f"The sandbox {self.id} is still being created; try again.")
        if self._init is None or self.dead():
            raise Terminal("The sandbox has died; create a new one.")
        return self._init

    def dead(self) -> bool:
        if self._init is None:
            return True
        poll = select.poll()
        poll.register(self._init, select.POLLIN)
        return bool(poll.poll(0))

    def tidy_execs(self, ended: ExecGroup) -> None:
        """After the end of the command of that group. As long as children that it left behind
        run, the group stays for them."""
        self._lingering.add(ended)
        for group in [group for group in self._lingering if not group.populated()]:
            self._lingering.discard(group)
            group.remove()

    def open_root(self) -> int:
        try:
            return os.open(self.merged, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"There is no sandbox {self.id}; it was destroyed.") from None

    # Ending

    async def end_processes(self) -> None:
        """Idempotent, from any state that a crash may have left."""
        self.cgroup.kill_stragglers()
        await self.cgroup.kill()
        if (Path(str(self._runc[2])) / self.id).exists():
            await command(*self._runc, "delete", "--force", self.id)
        self.let_go()

    def let_go(self) -> None:
        """Without touching it."""
        if self._init is not None:
            os.close(self._init)
            self._init = None

    async def unmount(self) -> None:
        points = overlay.mounts_under(self._folder)
        if self.merged.parent != self._folder:
            points.append(self.merged)
        for point in points:
            await overlay.unmount(point)

    async def discard(self, trash: Trash) -> None:
        """The last of it: cgroups, then the folder and with it the record."""
        await self.cgroup.remove()
        if self.merged.parent != self._folder:
            with contextlib.suppress(FileNotFoundError):
                self.merged.rmdir()
        with contextlib.suppress(FileNotFoundError):
            trash.take(self._folder)
