"""The main job, done through the product's own services and measured. Runs as the service account
beside a running Redis, sandboxd and worker; `run` reports steps and returns the figures."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from console.embedded.demo.baseline import install_by_hand
from console.fleet import sessions
from console.fleet.models import Backend
from console.fleet.runtime import Runtime
from console.fleet.services import create_space
from console.fleet.workspace import INPUT_DIR, OUTPUT_DIR, script_argv
from console.tenants.models import Space
from sandboxes.errors import NotFound, SandboxError
from sandboxes.types import ExecRequest, FileType, ListFilter
from skills.models import SKILLS_ROOT, Build, BuildLogLine, BuildStep, Release, SkillVersion
from skills.ports import SYSTEM
from skills.services.builds import request_build
from skills.services.catalog import add_package

__all__ = ["Failed", "Report", "clean", "run"]

Report = Callable[[str, float | None, str], None]
"""(stage, how far it is from 0 to 1 or None, what is being done)."""

SESSIONS = 20
COMMANDS = 50
_INPUTS = Path(__file__).with_name("inputs")


class Failed(Exception):
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A skill's script run on an input; `expects` are the artifacts and what must be in each."""

    skill: str
    script: str
    args: tuple[str, ...]
    expects: dict[str, bytes]


USES = (
    Use(
        skill="table-report",
        script="scripts/report.py",
        args=(f"{INPUT_DIR}/sales.csv", "--value", "Revenue", "--by", "Region"),
        expects={"sales-report.xlsx": b"PK\x03\x04", "sales-chart.png": b"\x89PNG\r\n"},
    ),
    Use(
        skill="pdf-text",
        script="scripts/extract.py",
        args=(f"{INPUT_DIR}/handbook.pdf",),
        expects={
            "handbook.txt": b"Steep green tea at 80 degrees",
            "handbook.json": b'"title": "Tea tasting handbook"',
        },
    ),
    Use(
        skill="chart-svg",
        script="scripts/chart.mjs",
        args=(f"{INPUT_DIR}/sales.csv", "--x", "Product", "--y", "Units", "--sum"),
        expects={"sales.svg": b"<svg"},
    ),
)


async def run(report: Report, artifacts: Path) -> dict[str, Any]:
    """The figures of the whole job, times in the unit that their names end with. Artifacts are
    written to `artifacts`. Failed or SandboxError says what went wrong."""
    space = await Space.objects.select_related("backend", "tenant").aget()
    versions = await _add_skills(space, report)
    build_s, release = await _build(space, versions, report)
    async with Runtime() as runtime:
        found = await _use(runtime, space, report, artifacts)
        figures = await _measure(runtime, space, report)
        install_s = await _without_release(runtime, space, versions, report)
    return {
        "build_s": round(build_s, 1),
        "release_bytes": release.size_bytes,
        **figures,
        "session_from_base_with_install_s": round(install_s, 1),
        "artifacts": found,
    }


async def clean() -> None:
    """Delete every sandbox and snapshot of this backend: it is the demo's own."""
    backend = await Backend.objects.aget()
    async with await backend.open_client() as client:
        async for sandbox in client.list(ListFilter()):
            try:
                await client.delete(sandbox.id)
            except NotFound:
                continue
        if client.snapshots is not None:
            async for snapshot in client.snapshots.list():
                await client.snapshots.delete(snapshot.id)


async def _add_skills(space: Space, report: Report) -> list[SkillVersion]:
    versions = []
    for number, use in enumerate(USES):
        report("Read the skills", number / len(USES), use.skill)
        folder = settings.BASE_DIR / "skills" / "examples" / use.skill
        versions.append(
            await sync_to_async(add_package)(tenant=space.tenant, source=folder, actor=SYSTEM)
        )
    report("Read the skills", 1.0, ", ".join(use.skill for use in USES))
    return versions


async def _build(
    space: Space, versions: list[SkillVersion], report: Report
) -> tuple[float, Release]:
    begun = time.monotonic()
    build = await sync_to_async(request_build)(space=space, actor=SYSTEM, add=versions)
    order = [step.value for step in BuildStep]
    while not build.is_finished:
        await asyncio.sleep(0.1)
        build = await Build.objects.aget(pk=build.pk)
        line = await BuildLogLine.objects.filter(build=build).order_by("-id").afirst()
        done = order.index(build.step) / len(order) if build.step else 0.0
        said = (line.text.strip().splitlines() or [""])[-1] if line else "waiting for the worker"
        report("Build the release", done, said[:100])
    took = time.monotonic() - begun
    release = await Release.objects.filter(build=build).afirst()
    if release is None:
        raise Failed(f"The build {build.state}: {build.error or 'it made no release'}")
    report("Build the release", 1.0, f"release {release.generation} in {took:.0f} s")
    return took, release


async def _use(
    runtime: Runtime, space: Space, report: Report, artifacts: Path
) -> list[dict[str, Any]]:
    stage = "Run the skills in a session"
    live = await sessions.resolve(
        runtime=runtime, space=space, session_id="demo-artifacts", actor=SYSTEM
    )
    files, sandbox = sessions.files_of(live.client), live.sandbox
    for path in sorted(_INPUTS.iterdir()):
        await files.write(sandbox, f"{INPUT_DIR}/{path.name}", path.read_bytes())
    for number, use in enumerate(USES):
        report(stage, number / len(USES), f"{use.skill}: {use.script}")
        folder = f"{SKILLS_ROOT}/{use.skill}"
        argv = await script_argv(
            files=files, sandbox=sandbox, skill_path=folder, script=use.script, args=use.args
        )
        done = await live.client.run(sandbox, ExecRequest(argv=argv, cwd=folder, timeout_s=120))
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip()
            raise Failed(f"{use.skill} exited with {done.exit_code}: {said[-500:]}")
    found = []
    wanted = {name: content for use in USES for name, content in use.expects.items()}
    for entry in await files.list(sandbox, OUTPUT_DIR, depth=3):
        if entry.type is not FileType.FILE:
            continue
        async with files.read(sandbox, entry.path) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        name = Path(entry.path).name
        if wanted.pop(name, b"") not in content:
            raise Failed(f"{name} does not hold what it should.")
        (artifacts / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        found.append({"path": name, "bytes": len(content), "sha256": digest})
    if wanted:
        raise Failed(f"The skills did not make {', '.join(wanted)}.")
    report(stage, 1.0, f"{len(found)} artifacts")
    return found


async def _measure(runtime: Runtime, space: Space, report: Report) -> dict[str, float]:
    starts, commands = [], []
    command = ExecRequest(argv=("true",))
    stage = "Measure sessions from the release"
    for number in range(SESSIONS):
        report(stage, number / SESSIONS, f"session {number + 1} of {SESSIONS}")
        begun = time.perf_counter()
        name = f"demo-{number}"
        live = await sessions.resolve(runtime=runtime, space=space, session_id=name, actor=SYSTEM)
        await live.client.run(live.sandbox, command)
        starts.append(time.perf_counter() - begun)
        if number < SESSIONS - 1:
            await sessions.destroy(runtime=runtime, space=space, session_id=name, actor=SYSTEM)
    for _ in range(COMMANDS):
        begun = time.perf_counter()
        await live.client.run(live.sandbox, command)
        commands.append(time.perf_counter() - begun)
    snapshots = live.client.snapshots
    if snapshots is None:
        raise Failed("The backend takes no snapshots.")
    begun = time.perf_counter()
    snapshot = await snapshots.create(live.sandbox.id, name="demo-snapshot")
    took = time.perf_counter() - begun
    await snapshots.delete(snapshot.id)
    report(stage, 1.0, f"{statistics.median(starts) * 1000:.0f} ms each")
    return {
        "session_from_release_ms": round(statistics.median(starts) * 1000, 1),
        "exec_ms": round(statistics.median(commands) * 1000, 1),
        "snapshot_ms": round(took * 1000, 1),
    }


async def _without_release(
    runtime: Runtime, space: Space, versions: list[SkillVersion], report: Report
) -> float:
    """What every session would wait for if it had to install the same skills itself."""
    stage = "Install by hand, to compare"
    bare = await sync_to_async(create_space)(
        tenant=space.tenant, name="Bare", slug="bare", backend=space.backend, actor=SYSTEM
    )
    plans = {
        v.skill.name: (await sync_to_async(lambda v=v: v.current_plan.plan())()) for v in versions
    }
    report(stage, None, "from the base template, without a release")
    begun = time.monotonic()
    live = await sessions.resolve(runtime=runtime, space=bare, session_id="bare", actor=SYSTEM)
    try:
        await install_by_hand(live, plans, lambda text: report(stage, None, text))
    except SandboxError as error:
        raise Failed(f"Installing by hand failed: {error.message}") from error
    took = time.monotonic() - begun
    report(stage, 1.0, f"{took:.0f} s")
    return took
