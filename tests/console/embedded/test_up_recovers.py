"""`manage.py up`, whole: it serves, it survives kill -9 of anything, it stops in order."""

from __future__ import annotations

import contextlib
import http.client
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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
CHILDREN = {
    "redis": "redis-server",
    "sandboxd": "sandboxes.sandboxd",
    "web": "console.embedded.web",
    "worker": "worker@skillyard",
    "builder": "builder@skillyard",
    "beat": "beat",
}
pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="the whole product needs root"),
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
    pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed"),
]


class Up:
    """One run of `manage.py up` in a data directory of its own."""

    def __init__(self, data: Path, port: int) -> None:
        self.data, self.port = data, port
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLYARD_", "REDIS"))}
        environ.pop("DJANGO_SETTINGS_MODULE", None)
        command = [sys.executable, "manage.py", "up", "--no-template"]
        command += ["--data-dir", str(data), "--port", str(port)]
        self.output = data.with_suffix(".out")
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=CHECKOUT, env=environ, stdout=output, stderr=subprocess.STDOUT
            )

    def said(self) -> str:
        return self.output.read_text()

    def wait_until_it_runs(self) -> None:
        until(lambda: "Skillyard runs at" in self.said() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.said()

    def children(self) -> dict[str, int]:
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int(path.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
                command = path.joinpath("cmdline").read_bytes().decode().replace("\0", " ")
                if parent == self.process.pid:
                    found |= {n: int(path.name) for n, sign in CHILDREN.items() if sign in command}
        return found

    def status(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        finally:
            connection.close()


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def place() -> Iterator[tuple[Path, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="up-") as folder:  # short: it holds unix sockets
        Path(folder).chmod(0o755)
        yield Path(folder) / "data", port


def test_up_serves_survives_and_stops(place: tuple[Path, int]) -> None:
    first = Up(*place)
    try:
        first.wait_until_it_runs()
        assert first.status() < 500
        login = re.search(r"First login: admin / (\S+)", first.said())
        assert login
        assert set(first.children()) == set(CHILDREN)

        second = subprocess.run(
            [sys.executable, "manage.py", "up", "--data-dir", str(first.data)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert f"already runs on {first.data}" in second.stderr
        assert f"kill {first.process.pid}" in second.stderr

        for name, pid in first.children().items():
            os.kill(pid, signal.SIGKILL)
            until(lambda name=name, pid=pid: first.children().get(name, pid) != pid)
            assert f"{name} exited with -9" in first.said()
        until(lambda: first.status() < 500)

        orphans = first.children()
        first.process.kill()
        first.process.wait()
        until(lambda: not any(map(is_running, orphans.values())), 20)
    finally:
        first.process.kill()
        first.process.wait()

    third = Up(*place)
    try:
        third.wait_until_it_runs()
        assert f"First login: admin / {login[1]}" in third.said()
        assert third.status() < 500
        as_service = subprocess.run(
            [
                *(sys.executable, "manage.py", "as_service", "--data-dir", str(third.data)),
                *("shell", "-v0", "-c", "import os; print(os.geteuid())"),
            ],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(as_service.stdout) == (third.data / "console").stat().st_uid != 0
        children = third.children()
        begun = time.monotonic()
        third.process.send_signal(signal.SIGTERM)
        assert third.process.wait(30) == 0
        assert time.monotonic() - begun < 15
        assert third.said().endswith("Stopped.\n")
        assert not any(map(is_running, children.values()))
    finally:
        third.process.kill()
        third.process.wait()
    password = json.loads((place[0] / "console/first-login.json").read_text())["password"]
    assert all(password not in path.read_text() for path in (place[0] / "logs").iterdir())


def test_a_port_in_use_is_named(place: tuple[Path, int]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", place[1]))
        taken.listen()
        refused = Up(*place)
        assert refused.process.wait(60) == 1
    assert f"Port {place[1]} of 127.0.0.1 cannot be used" in refused.said()
    assert f"--port {place[1] + 1}" in refused.said()
