"""`manage.py demo`: the main job in the terminal, on a data directory of its own.

It starts what it needs (Redis, sandboxd, a worker), runs `job` as the service account, shows its
steps, copies the artifacts out, and leaves nothing behind. What a killed run left is cleared by the
next one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.embedded.accounts import Launcher, ensure_service_account
from console.embedded.errors import CannotStart
from console.embedded.layout import Layout
from console.embedded.product import Product
from console.embedded.supervisor import Supervisor
from console.embedded.up import only_one
from sandboxes.sandboxd.templates import TemplateStore

__all__ = ["Demo", "run"]

_STAGES = {"template": "Base template", "start": "Start Redis, sandboxd and a worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """`report` gets (stage, how far or None, what is being done)."""

    data: Path
    templates: Path
    output: Path
    checkout: Path
    report: Callable[[str, float | None, str], None]


async def run(demo: Demo) -> dict[str, Any]:
    """The figures, with `ok`. CannotStart where the product cannot; a failed job is `ok: false`
    with an `error`."""
    if os.geteuid() != 0:
        raise CannotStart("The demo needs root for its sandboxes: run it with sudo.")
    await asyncio.to_thread(
        TemplateStore(demo.templates).build_base,
        lambda text, fraction: demo.report(_STAGES["template"], fraction, text),
    )
    account = ensure_service_account()
    demo.data.mkdir(mode=0o755, parents=True, exist_ok=True)
    os.environ["SKILLYARD_TEMPLATES_DIR"] = str(demo.templates)
    os.environ.pop("SKILLYARD_SANDBOXD_SOCKET", None)
    layout = Layout.of(demo.data)
    with only_one(layout, "the demo"):
        for folder in (layout.console, layout.redis):
            shutil.rmtree(folder, ignore_errors=True)
        layout.prepare(account)
        product = Product(layout, Launcher(account=account, checkout=demo.checkout))
        return await _interruptible(_run(demo, product))


async def _interruptible(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Ctrl-C and SIGTERM cancel the work, which then cleans up."""
    task = asyncio.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _run(demo: Demo, product: Product) -> dict[str, Any]:
    layout = product.layout
    supervisor = Supervisor(logs=layout.logs, announce=lambda line: demo.report("", None, line))
    serving = False
    try:
        demo.report(_STAGES["start"], 0.0, "Redis")
        redis = product.redis()
        if redis is not None:
            await supervisor.start(redis)
        demo.report(_STAGES["start"], 0.2, "database")
        await supervisor.run_once(product.prepare())
        demo.report(_STAGES["start"], 0.5, "sandboxd")
        sandboxd = product.sandboxd(lambda line: None)
        if sandboxd is not None:
            await supervisor.start(sandboxd)
        serving = True
        await _job(demo, product, "clean")
        demo.report(_STAGES["start"], 0.8, "worker")
        for worker in product.workers():
            await supervisor.start(worker)
        demo.report(_STAGES["start"], 1.0, "ready")
        result = await _job(demo, product, "run")
        _copy_artifacts(layout.console / "artifacts", demo.output, result)
        return result
    finally:
        if serving:
            await asyncio.shield(_job(demo, product, "clean"))
        await asyncio.shield(supervisor.stop())
        shutil.rmtree(layout.data, ignore_errors=True)


async def _job(demo: Demo, product: Product, what: str) -> dict[str, Any]:
    argv = product.launcher.unprivileged("manage.py", "demo", "--job", what)
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=product.environ,
        cwd=product.launcher.checkout,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    if process.stdout is None or process.stderr is None:
        raise CannotStart("The demo's job could not be listened to.")
    errors = asyncio.create_task(process.stderr.read())
    result: dict[str, Any] = {}
    try:
        async for line in process.stdout:
            said = json.loads(line)
            if "result" in said:
                result = said["result"]
            else:
                demo.report(said["stage"], said["fraction"], said["text"])
        if await process.wait() != 0:
            words = (await errors).decode(errors="replace").strip()
            result = {"ok": False, "error": words.splitlines()[-1] if words else "It was killed."}
            sys.stderr.write(f"{words}\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return result


def _copy_artifacts(source: Path, target: Path, result: dict[str, Any]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for artifact in result.get("artifacts", ()):
        path = target / artifact["path"]
        with open(source / artifact["path"], "rb") as content:
            path.write_bytes(content.read())
        artifact["path"] = str(path)
