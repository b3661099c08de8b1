"""The whole product as `manage.py up` runs it, on a data directory of the tests' own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandboxes.sandboxd.templates.commands import default_templates_dir

__all__ = ["Product", "start"]

CHECKOUT = Path(__file__).resolve().parents[2]
READY = re.compile(r"Skillyard runs at (http://\S+)")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 40.0
ORPHAN_GRACE_S = 3
"""Instead of an hour."""


@dataclass(frozen=True)
class Product:
    process: subprocess.Popen[bytes]
    data: Path
    output: Path
    url: str

    @property
    def login(self) -> tuple[str, str]:
        first = json.loads((self.data / "console" / "first-login.json").read_text())
        return first["username"], first["password"]

    @property
    def socket(self) -> Path:
        """Of its sandboxd."""
        return self.data / "run" / "sandboxd.sock"

    def process_of(self, *words: str) -> int:
        """The id of the one process below it whose command line has these words. Raises LookupError."""
        parents: dict[int, int] = {}
        commands: dict[int, list[str]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
                commands[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
        for pid, command in commands.items():
            ancestor = pid
            while ancestor > 1 and ancestor != self.process.pid:
                ancestor = parents.get(ancestor, 0)
            if ancestor == self.process.pid and set(words) <= set(command):
                return pid
        raise LookupError(f"no process of the product has {words} in its command line")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def start() -> Iterator[Product]:
    """Run it until the block is left. Then its sandboxes end too, however the tests ended."""
    # Not under pytest's tmp_path: the service account has to reach it.
    data = Path(tempfile.mkdtemp(prefix="skillyard-e2e-", dir="/var/tmp"))
    data.chmod(0o755)
    output = data / "up.log"
    environ = {
        key: value
        for key, value in os.environ.items()
        if key not in ("REDIS_URL", "DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    }
    environ |= {
        "SKILLYARD_DATA_DIR": str(data),
        "SKILLYARD_TEMPLATES_DIR": str(default_templates_dir()),
        "SKILLYARD_ORPHAN_GRACE_S": str(ORPHAN_GRACE_S),
        "PYTHONUNBUFFERED": "1",
    }
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(_free_port())],
            cwd=CHECKOUT,
            env=environ,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Product(process, data, output, _wait_for_url(process, output))
    finally:
        _end_sandboxes(data / "run" / "sandboxd.sock")
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
        shutil.rmtree(data, ignore_errors=True)


def _end_sandboxes(socket_path: Path) -> None:
    """They outlive sandboxd, and with them their mounts and networks."""
    transport = httpx.HTTPTransport(uds=str(socket_path))
    with httpx.Client(transport=transport, base_url="http://sandboxd", timeout=30) as client:
        with suppress(httpx.TransportError):
            while found := client.get("/v2/sandboxes?state=running,paused").json():
                for sandbox in found:
                    client.delete(f"/sandboxes/{sandbox['sandboxID']}").raise_for_status()


def _wait_for_url(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        text = output.read_text()
        if found := READY.search(text):
            return found.group(1)
        if process.poll() is not None:
            raise AssertionError(f"`manage.py up` ended with {process.returncode}:\n{text}")
        time.sleep(0.1)
    raise AssertionError(f"`manage.py up` was not ready in {START_TIMEOUT_S:g} s:\n{text}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
