"""Building base templates on this host: one process a build, apart from the daemon, whose word on stdout is how
far it is. What is told of a build is lost with the daemon; the template it made is not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from sandboxes.errors import NotFound, Unsupported
from sandboxes.sandboxd.images import Images
from sandboxes.sandboxd.templates.base import BASE_NAME
from sandboxes.types import TemplateBuild, TemplateStatus

__all__ = ["TemplateBuilds"]

_MODULE = "sandboxes.sandboxd.templates"
_IMPORT = "import a root file system on the host: `manage.py template import NAME ROOTFS.TAR`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    process: asyncio.subprocess.Process
    task: asyncio.Task[None]


class TemplateBuilds:
    """`folder` is where templates are; None if this host builds none."""

    def __init__(self, images: Images, folder: Path | None) -> None:
        self._images = images
        self._folder = folder
        self._builds: dict[str, TemplateBuild] = {}
        self._running: dict[str, _Running] = {}
        self._starting = asyncio.Lock()

    def refusal(self) -> str:
        """Why none can be built here, with the mend; empty if they can."""
        if self._folder is None or os.geteuid() != 0 or _maps_users():
            return f"Building a template needs root; run sandboxd as root, or {_IMPORT}."
        if shutil.which("mmdebstrap") is None:
            return (
                "Building a template needs mmdebstrap on sandboxd's host: `apt-get install mmdebstrap "
                f"debian-archive-keyring`; or {_IMPORT}."
            )
        return ""

    async def ensure(self, name: str, *, rebuild: bool) -> TemplateBuild:
        """As `sandboxes.client.TemplateCatalog.ensure`."""
        async with self._starting:
            if name in self._running:
                return self._builds[name]
            if not rebuild and (there := await self._there(name)) is not None:
                self._builds.pop(name, None)
                return there
            if name != BASE_NAME:
                raise Unsupported(
                    f"“{name}” has no recipe here, only “{BASE_NAME}” has; {_IMPORT}."
                )
            if refusal := self.refusal():
                raise Unsupported(refusal)
            return await self._start(name, rebuild=rebuild)

    async def status(self, name: str) -> TemplateBuild:
        if (known := self._builds.get(name)) is not None:
            return known
        if (there := await self._there(name)) is not None:
            return there
        raise NotFound(f"There is no template “{name}”, and no build of one")

    async def aclose(self) -> None:
        """End what runs; the next build clears what it left."""
        for running in list(self._running.values()):
            if running.process.returncode is None:
                running.process.terminate()
        await asyncio.gather(*(running.task for running in self._running.values()))

    async def _there(self, name: str) -> TemplateBuild | None:
        for template in await self._images.templates():
            if name in (template.name, template.id):
                return TemplateBuild(
                    name=name, status=TemplateStatus.READY, fraction=1.0, template_id=template.id
                )
        return None

    async def _start(self, name: str, *, rebuild: bool) -> TemplateBuild:
        argv = [sys.executable, "-m", _MODULE, f"--templates-dir={self._folder}", "build", "--json"]
        process = await asyncio.create_subprocess_exec(
            # The build ends with the daemon, however that ends.
            *("setpriv", "--pdeathsig=TERM", "--", *argv, *(["--rebuild"] if rebuild else [])),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        build = TemplateBuild(name=name, status=TemplateStatus.BUILDING, step="starting")
        self._builds[name] = build
        task = asyncio.create_task(self._follow(name, process))
        self._running[name] = _Running(process=process, task=task)
        return build

    async def _follow(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes
        errors = asyncio.create_task(process.stderr.read())
        try:
            async for line in process.stdout:
                self._report(name, line)
            code = await process.wait()
            said = (await errors).decode(errors="replace").strip().splitlines()
            there = await self._there(name) if code == 0 else None
            if there is not None:
                self._builds[name] = there
                return
            error = said[-1] if said else "The build ended and said nothing; see sandboxd's log."
            build = replace(self._builds[name], status=TemplateStatus.FAILED, error=error)
            self._builds[name] = build
        finally:
            errors.cancel()
            del self._running[name]

    def _report(self, name: str, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        build = self._builds[name]
        fraction = said["fraction"] if said["fraction"] is not None else build.fraction
        self._builds[name] = replace(build, step=said["text"], fraction=fraction)


def _maps_users() -> bool:
    """Root of a user namespace only, where Debian's devices can't be made."""
    return Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]
