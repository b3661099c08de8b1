"""A sandboxd of the tests' own, on its own data directory, and a look at what it left on the host."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandboxes.sandboxd.templates import TemplateStore
from sandboxes.sandboxd.templates.commands import default_templates_dir

__all__ = ["Daemon", "base_template", "leftovers", "start", "why_not"]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


@dataclass
class Daemon:
    argv: list[str]
    data_dir: Path
    socket: Path
    log: Path
    tcp: str | None = None
    api_key: str = ""

    def run(self) -> None:
        """Start it, for the first time or again; returns when it listens."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.argv, stdout=output, stderr=output)
        _wait_until_it_listens(self)

    def crash(self) -> None:
        """kill -9, as a power cut to the daemon alone; its sandboxes live on."""
        self.process.kill()
        self.process.wait()

    @property
    def key(self) -> str:
        """What the engine names its control groups and networks after."""
        return hashlib.sha256(os.fsencode(self.data_dir.absolute())).hexdigest()[:8]

    def stop(self) -> None:
        """Idempotent. Its sandboxes would live on, so tests delete theirs first."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"sandboxd did not stop:\n{self.log.read_text()}") from None


def why_not() -> str | None:
    """Why no sandboxd with the runc engine can run here, with the mend; None if it can."""
    if os.geteuid() != 0:
        return "needs root; run the tests as root"
    missing = [name for name in ("runc", "nft", "ip") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}; install runc nftables iproute2"
    if not TemplateStore(default_templates_dir()).list():
        return "needs the base template; build it with `python manage.py template build`"
    return None


def base_template() -> str:
    """The id of the newest template called base, or of the newest there is."""
    templates = TemplateStore(default_templates_dir()).list()
    ordered = sorted(templates, key=lambda template: (template.name == "base", template.created_at))
    return ordered[-1].id


@contextmanager
def start(
    *, tcp_port: int | None = None, prefix: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Daemon]:
    """A running sandboxd, stopped afterwards. `prefix` is a command that runs it, `options` are
    further arguments of its own."""
    # Not below pytest's own directory: a sandbox's root has to be able to pass through.
    with tempfile.TemporaryDirectory(prefix="sandboxd-") as directory:
        Path(directory).chmod(0o711)
        with _started(Path(directory), tcp_port, prefix, options) as daemon:
            yield daemon


@contextmanager
def _started(
    directory: Path, tcp_port: int | None, prefix: Sequence[str], options: Sequence[str]
) -> Iterator[Daemon]:
    socket_path, log = directory / "sandboxd.sock", directory / "sandboxd.log"
    argv = [*prefix, sys.executable, "-m", "sandboxes.sandboxd", "serve"]
    argv += ["--data-dir", str(directory / "data"), "--socket", str(socket_path), *options]
    api_key, tcp = "", None
    if tcp_port is not None:
        api_key, tcp = f"e2b_{os.urandom(20).hex()}", f"127.0.0.1:{tcp_port}"
        key_file = directory / "key"
        key_file.write_text(api_key)
        argv += ["--tcp", tcp, "--api-key-file", str(key_file)]
    daemon = Daemon(argv, directory / "data", socket_path, log, tcp, api_key)
    try:
        daemon.run()
        yield daemon
    finally:
        daemon.stop()


def _wait_until_it_listens(daemon: Daemon) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if daemon.process.poll() is not None:
            break
        if _answers(daemon.socket):
            return
        time.sleep(0.02)
    raise AssertionError(f"sandboxd did not start:\n{daemon.log.read_text()}")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
            probe.sendall(b"GET /sandboxd/engine HTTP/1.0\r\n\r\n")
            return probe.recv(12).startswith(b"HTTP/1")
        except OSError:
            return False


def leftovers(daemon: Daemon, sandbox_id: str | None = None) -> list[str]:
    """Mounts, processes, control groups, networks and files of a sandbox; without an id, of any.

    Files of the daemon itself (its records, its log) do not count.
    """
    name = sandbox_id or str(daemon.data_dir)
    found = [f"mount {line}" for line in _lines("/proc/self/mountinfo") if name in line]
    group = sandbox_id or f"skillyard-{daemon.key}"
    found += [f"process {what}" for what, groups in _process_groups() if group in groups]
    # Other programs remove groups meanwhile: os.walk takes no notice.
    groups = (parent for parent, names, _ in os.walk("/sys/fs/cgroup") if group in names)
    found += [f"cgroup {parent}/{group}" for parent in groups]
    found += [f"network {path}" for path in _networks(daemon, sandbox_id)]
    sandboxes = daemon.data_dir / "sandboxes"
    found += [
        f"folder {path}"
        for path in (sandboxes.iterdir() if sandboxes.exists() else ())
        if sandbox_id in (None, path.name) and path.is_dir()
    ]
    if sandbox_id is None:
        found += _host_rules(daemon)
    return found


def _networks(daemon: Daemon, sandbox_id: str | None) -> list[str]:
    directory = Path(f"/run/skillyard/network-{daemon.key}")
    if not directory.exists():
        return []
    return [str(path) for path in directory.rglob("*") if sandbox_id and sandbox_id in path.name]


def _host_rules(daemon: Daemon) -> list[str]:
    """Links and tables are told apart by a tag in the network's own record."""
    directory = Path(f"/run/skillyard/network-{daemon.key}")
    found = [f"network {path}" for path in directory.rglob("*") if path.is_mount()]
    tables = _json("nft", "-j", "list", "tables").get("nftables", [])
    ours = {table["table"]["name"] for table in tables if "table" in table} & _tables(directory)
    return found + [f"table {name}" for name in ours]


def _tables(directory: Path) -> set[str]:
    tags = set()
    for path in directory.rglob("*.json"):
        try:
            tag = json.loads(path.read_text()).get("tag")
        except (ValueError, AttributeError):
            continue
        tags.add(f"skillyard_{tag}")
    return tags


def _json(*argv: str) -> dict[str, list[dict[str, dict[str, str]]]]:
    done = subprocess.run(argv, capture_output=True, check=True)
    return json.loads(done.stdout or b"{}")  # type: ignore[no-any-return]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _process_groups() -> Iterator[tuple[str, str]]:
    """Of everything that runs; the dead that the host's init has yet to reap do not."""
    for path in Path("/proc").iterdir():
        stat = "".join(_lines(f"{path}/stat")[:1]) if path.name.isdigit() else ""
        if stat and not stat.rpartition(")")[2].lstrip().startswith("Z"):
            yield stat[:60], "\n".join(_lines(f"{path}/cgroup"))
