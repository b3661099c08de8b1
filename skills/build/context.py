"""What the steps of one build share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from sandboxes.client import SandboxClient
from sandboxes.errors import NotFound, SandboxError
from sandboxes.types import (
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecResult,
    Sandbox,
    Stream,
)
from skills.build.claim import Claim
from skills.build.failures import BuildFailed, ClaimLost
from skills.build.settings import BuildSettings
from skills.lock import SpaceLock
from skills.log import BuildLog, LineAssembler
from skills.models import SKILLS_ROOT, Build, BuildStep, PlanRevision, SkillVersion
from skills.plan import Plan
from skills.ports import SpacePort

__all__ = ["SCRATCH", "BuildContext", "Item", "in_db"]

P = ParamSpec("P")
T = TypeVar("T")

SCRATCH = "/var/tmp/skillyard-build"  # noqa: S108 (inside the sandbox, made by root with mode 0700)
"""Downloads and caches of a build; removed before the snapshot."""

_CLEANUP_S = 30.0


async def in_db(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that uses the database."""
    return await sync_to_async(function)(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Item:
    """One skill of the build, with what must be known of it without the database."""

    skill_id: str
    name: str
    version: SkillVersion
    revision: PlanRevision
    plan: Plan

    @property
    def path(self) -> str:
        return f"{SKILLS_ROOT}/{self.name}"


@dataclass(slots=True, kw_only=True)
class BuildContext:
    build: Build
    space: SpacePort
    claim: Claim
    client: SandboxClient
    lock: SpaceLock
    log: BuildLog
    settings: BuildSettings
    items: list[Item]
    install: list[Item] = field(default_factory=list)
    """Those of `items` that the sandbox does not have yet, in order."""
    remove: list[str] = field(default_factory=list)
    """Folders' names that the sandbox has and the result must not."""
    kept_python: frozenset[str] = frozenset()
    """Of `install`, by name: a new version of a skill whose .venv fits as it is."""
    kept_node: frozenset[str] = frozenset()
    sandbox: Sandbox | None = None
    packages: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    done: bool = False
    """The build has its outcome; the steps that are left have nothing to do."""

    async def begin_step(self, step: BuildStep) -> None:
        self.log.step = step
        await in_db(self.claim.begin_step, step)

    async def end_step(self) -> None:
        await in_db(self.claim.end_step, ok=True)

    async def still_mine(self) -> None:
        """Before what can't be undone: raises ClaimLost, BuildCancelled."""
        if not await self.lock.renew():
            raise ClaimLost(self.build.pk)
        await in_db(self.claim.beat)

    @property
    def live(self) -> Sandbox:
        if self.sandbox is None:
            raise BuildFailed("internal", "The build has no sandbox; try it again.")
        return self.sandbox

    async def run(
        self,
        *argv: str,
        user: str = "root",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        show: str | None = "",
    ) -> ExecExit:
        """Run a command with its output in the log, under `show` (None logs no heading)."""
        if show is not None:
            self.log.say(f"$ {show or ' '.join(argv)}")
        request = ExecRequest(
            argv=argv,
            cwd=cwd,
            env=dict(env or {}),
            user=user,
            timeout_s=timeout_s or self.settings.command_s,
        )
        lines = {Stream.STDOUT: LineAssembler(), Stream.STDERR: LineAssembler()}
        end: ExecExit | None = None
        async with self.client.exec(self.live, request) as events:
            async for event in events:
                if isinstance(event, ExecOutput):
                    self.log.output(event.stream, lines[event.stream].feed(event.data))
                elif isinstance(event, ExecExit):
                    end = event
        for stream, assembler in lines.items():
            self.log.output(stream, assembler.feed(b"", final=True))
        self.log.end_command()
        if end is None:
            raise BuildFailed("internal", "A command ended without its exit code; try it again.")
        return end

    async def must(self, code: str, what: str, *argv: str, **options: Any) -> None:
        """`run`, and BuildFailed(code) unless it exits 0."""
        end = await self.run(*argv, **options)
        if end.killed:
            raise BuildFailed(
                "too_long",
                f"{what} was stopped after {end.duration_s:.0f} s; make the step shorter or split it.",
            )
        if end.exit_code:
            raise BuildFailed(code, f"{what} failed with exit code {end.exit_code}; see the log.")

    async def ask(
        self, *argv: str, user: str = "root", stdin: bytes | None = None, timeout_s: float = 120.0
    ) -> ExecResult:
        """Run a command quietly and return what it says."""
        request = ExecRequest(argv=argv, user=user, stdin=stdin, timeout_s=timeout_s)
        return await self.client.run(self.live, request)

    async def write(self, path: str, data: Any, *, user: str = "root") -> None:
        files = self.client.files
        if files is None:
            raise BuildFailed("unsupported", "This backend can't take files, so it can't build.")
        await files.write(self.live, path, data, user=user)

    async def discard_sandbox(self) -> None:
        """Delete the build's sandbox, whatever happened. What fails here is the sweep's."""
        if self.sandbox is None:
            return
        sandbox, self.sandbox = self.sandbox, None
        try:
            async with asyncio.timeout(_CLEANUP_S):
                with contextlib.suppress(NotFound):
                    await self.client.delete(sandbox.id)
        except (SandboxError, TimeoutError) as error:
            self.log.say(f"The build's sandbox could not be deleted yet: {error}")
            return
        await in_db(
            lambda: Build.objects.filter(pk=self.build.pk, sandbox_id=sandbox.id).update(
                sandbox_id=""
            )
        )
