"""The base template's build in the background, and what pages may say of it meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from django.conf import settings

from console.embedded.layout import Layout

__all__ = ["TemplateBuild", "build_in_background", "template_build"]

_WRITE_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBuild:
    """`fraction` is how far it is, 0 to 1. `text` is the step, or why it failed."""

    state: Literal["building", "ready", "failed"]
    text: str
    fraction: float


def template_build() -> TemplateBuild | None:
    """Of this machine's base template; None where `manage.py up` does not run the product."""
    try:
        return TemplateBuild(**json.loads(Layout.of(settings.DATA_DIR).template_status.read_text()))
    except (OSError, ValueError, TypeError):
        return None


async def build_in_background(
    layout: Layout, environ: Mapping[str, str], announce: Callable[[str], None]
) -> None:
    """Build it unless this recipe's is there already (then this takes a moment). Never raises for
    a failed build: the pages and the terminal say why, and the next start tries again."""
    process = await asyncio.create_subprocess_exec(
        "setpriv",
        "--pdeathsig=TERM",
        "--",
        sys.executable,
        "-m",
        "sandboxes.sandboxd.templates",
        "--templates-dir",
        str(layout.templates),
        "build",
        "--json",
        env=dict(environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    if process.stdout is None or process.stderr is None:
        return
    errors = asyncio.create_task(process.stderr.read())
    status = _StatusFile(layout.template_status)
    announced = -1
    build = TemplateBuild(state="building", text="starting", fraction=0.0)
    try:
        async for line in process.stdout:
            report = json.loads(line)
            fraction = report["fraction"] if report["fraction"] is not None else build.fraction
            build = TemplateBuild(state="building", text=report["text"], fraction=fraction)
            status.write(build)
            if int(fraction * 10) > announced and fraction < 1:
                announced = int(fraction * 10)
                announce(f"base template: {fraction:.0%}, {build.text}")
        if await process.wait() == 0:
            status.write(TemplateBuild(state="ready", text=build.text, fraction=1.0), now=True)
            if announced >= 0:
                announce(f"base template: {build.text}")
            return
        said = (await errors).decode(errors="replace").strip().splitlines() or ["it said nothing"]
        status.write(TemplateBuild(state="failed", text=said[-1], fraction=0.0), now=True)
        announce(f"base template: {said[-1]}")
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


class _StatusFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def write(self, build: TemplateBuild, *, now: bool = False) -> None:
        """Whole, and not more often than anyone looks."""
        if not now and time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        self._written_at = time.monotonic()
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(build)))
        draft.chmod(0o644)
        draft.rename(self._path)
