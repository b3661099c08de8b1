"""A Docker engine of the tests' own: its socket, images, containers and networks are nobody else's.

It makes no bridge and no firewall rule, so that it can't disturb other networks of the machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker

__all__ = ["Dockerd", "start", "why_not"]

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0


@dataclass
class Dockerd:
    process: subprocess.Popen[bytes]
    directory: Path
    argv: list[str]

    @property
    def socket(self) -> Path:
        return self.directory / "docker.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def client(self) -> docker.DockerClient:
        """Docker's own client: what it sees is not our engine's word."""
        return docker.DockerClient(base_url=self.url)

    def containers(self) -> list[str]:
        """The names of all, stopped ones too."""
        with contextlib.closing(self.client()) as client:
            return [each.name for each in client.containers.list(all=True)]

    def stop(self) -> None:
        """Idempotent. Its containers end with it."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"dockerd did not stop:\n{self.log.read_text()}") from None

    def start_again(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.argv, stdout=output, stderr=output)
        _wait_until_it_answers(self)


def why_not() -> str | None:
    """Why no Docker engine can run here, with the mend; None if it can."""
    if os.geteuid() != 0:
        return "needs root; run the tests as root"
    if shutil.which("dockerd") is None:
        return "needs dockerd; install docker.io"
    return None


@contextmanager
def start(*options: str, prefix: Sequence[str] = ()) -> Iterator[Dockerd]:
    """A running engine, ended and cleared away afterwards. `options` are dockerd's, `prefix` a
    command that runs it."""
    directory = Path(tempfile.mkdtemp(prefix="dockerd-", dir="/tmp"))
    directory.chmod(0o711)  # for the root of containers, where it is another than the host's
    argv = [
        *prefix,
        *("dockerd", f"--host=unix://{directory}/docker.sock", "--group=0"),
        *(f"--data-root={directory}/data", f"--exec-root={directory}/exec"),
        *(f"--pidfile={directory}/pid", "--storage-driver=overlay2", "--bridge=none"),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        *options,
    ]
    try:
        with (directory / "log").open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output)
        daemon = Dockerd(process, directory, argv)
        try:
            _wait_until_it_answers(daemon)
            yield daemon
        finally:
            daemon.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_it_answers(daemon: Dockerd) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and daemon.process.poll() is None:
        if _answers(daemon.socket):
            return
        time.sleep(0.05)
    raise AssertionError(f"dockerd did not start:\n{daemon.log.read_text()}")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return probe.recv(64).startswith(b"HTTP/1.0 200")
        except OSError:
            return False
