"""The recipe of the template `base`: a small Debian with Python, node, uv and git.

Built by mmdebstrap as root in a few minutes from this host's own mirrors. The recipe, its files and
what is carried in from the host are hashed into the template's id: a change makes a new version.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandboxes.errors import Capacity, Unavailable, Unsupported
from sandboxes.sandboxd.templates.host import DebianSource, HostSettings, debian_sources

__all__ = ["BASE_NAME", "RECIPE", "BaseRecipe", "bootstrap"]

BASE_NAME = "base"

Report = Callable[[str, float | None], None]

_CUSTOMIZE = Path(__file__).with_name("customize.sh")
_NEEDED_BYTES = 1_500_000_000
_EXPECTED_PACKAGES = 150
_LAST_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecipe:
    """What goes into the base. Versions of what does not come from Debian are pinned."""

    suite: str = "bookworm"
    packages: tuple[str, ...] = (
        "bash",
        "ca-certificates",
        "coreutils",
        "curl",
        "git",
        "procps",
        "python-is-python3",
        "python3",
        "python3-pip",
        "python3-venv",
        "sudo",
    )
    left_out: tuple[str, ...] = (
        "/usr/share/doc/*",
        "/usr/share/info/*",
        "/usr/share/locale/*",
        "/usr/share/man/*",
    )
    uv_version: str = "0.13.9"
    node_version: str = "24.19.0"
    architecture: str = field(default_factory=platform.machine)

    def describe(self, settings: HostSettings) -> dict[str, object]:
        """What template.json records, and what the id's hash is of."""
        return {
            **asdict(self),
            "customize": hashlib.sha256(_CUSTOMIZE.read_bytes()).hexdigest(),
            "host_settings": settings.digest(),
        }

    def template_id(self, settings: HostSettings) -> str:
        text = json.dumps(self.describe(settings), sort_keys=True)
        return f"{BASE_NAME}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


RECIPE = BaseRecipe()


def bootstrap(
    recipe: BaseRecipe, settings: HostSettings, target: Path, report: Report, *, keep_fd: int
) -> None:
    """Build the recipe into the directory `target` with the host's plain ids; about 90 s.

    `keep_fd` is handed down to every process of the build, so that a lock on it lasts as long as
    any of them. Unsupported, Capacity or Unavailable with the mend in one sentence.
    """
    program = _check_host(target.parent)
    sources = debian_sources(recipe.suite)
    with tempfile.TemporaryDirectory(prefix=".settings-", dir=target.parent) as staging:
        _stage(settings, Path(staging))
        command = [
            # It ends with whoever builds, however that ends, and what it has mounted ends with it:
            # left on the host, whoever deletes the folder would delete through it.
            *("setpriv", "--pdeathsig=TERM", "--"),
            *("unshare", "--mount", "--propagation=private", "--", program),
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
            "--verbose",
            f"--include={','.join(recipe.packages)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.left_out),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            "--dpkgopt=force-unsafe-io",
            *(f"--aptopt={option}" for option in settings.apt_options),
            f"--customize-hook={_CUSTOMIZE}",
            recipe.suite,
            str(target),
            *(source.line() for source in sources),
        ]
        environ = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "TMPDIR": str(target.parent),
            "SETTINGS": staging,
            "UV_VERSION": recipe.uv_version,
            "NODE_VERSION": recipe.node_version,
            **settings.build_env,
        }
        _run(command, environ, report, sources, keep_fd)


def _check_host(folder: Path) -> str:
    """The path of mmdebstrap."""
    if os.geteuid() != 0:
        raise Unsupported(
            "Building the base template needs root: run it with sudo, or bring a root file system "
            "with `manage.py template import base rootfs.tar`."
        )
    program = shutil.which("mmdebstrap")
    if program is None:
        raise Unsupported(
            "Building the base template needs mmdebstrap: `apt-get install mmdebstrap "
            "debian-archive-keyring`, or bring a root file system with `manage.py template import "
            "base rootfs.tar`."
        )
    keyring = DebianSource(uri="", suite="").keyring
    if not Path(keyring).exists():
        raise Unsupported(
            f"{keyring} is missing, so Debian's packages cannot be checked: `apt-get install "
            "debian-archive-keyring`."
        )
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise Capacity(
            f"Building the base template needs {_NEEDED_BYTES // 1_000_000} MB in {folder}, which "
            f"has {free // 1_000_000} MB left: free some, or set SKILLYARD_TEMPLATES_DIR to a "
            "larger disk."
        )
    return program


def _stage(settings: HostSettings, staging: Path) -> None:
    for name, text in settings.files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)


def _run(
    command: list[str],
    environ: dict[str, str],
    report: Report,
    sources: list[DebianSource],
    keep_fd: int,
) -> None:
    report("downloading Debian's package lists", 0.0)
    last: list[str] = []
    counter = _AptProgress()
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(keep_fd,),
    )
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        for line in process.stdout:
            last = [*last[-_LAST_LINES:], line.rstrip()]
            for text, fraction in counter.feed(line):
                report(text, fraction)
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    if code != 0:
        raise _failure(code, last, sources)


class _AptProgress:
    """Turns apt's and our own lines into steps. The fraction is an estimate until apt has said how
    many packages there are."""

    def __init__(self) -> None:
        self._done = 0
        self._total = 0

    def feed(self, line: str) -> Iterator[tuple[str, float | None]]:
        found = re.match(r"\d+ upgraded, (\d+) newly installed", line)
        if found:
            self._total += int(found[1])
        elif line.startswith("SKILLYARD: "):
            yield line.removeprefix("SKILLYARD: ").strip(), None
        else:
            found = re.match(r"(Get:\d+ .*\[|Unpacking|Setting up) ?(\S*)", line)
            if not found:
                return
            self._done += 1
            verb = {"U": "unpacking", "S": "setting up", "G": "downloading"}[line[0]]
            name = line.split()[4] if line[0] == "G" and len(line.split()) > 4 else found[2]
            total = 3 * max(self._total, _EXPECTED_PACKAGES)
            yield f"{verb} {name.split(':')[0]}", 0.8 * min(1.0, self._done / total)


def _failure(code: int, last: list[str], sources: list[DebianSource]) -> Exception:
    detail = "\n".join(last)
    if re.search(r"Could not resolve|Connection (failed|refused|timed out)|Unable to connect|"
                 r"Network is unreachable|NewConnectionError|Failed to fetch", detail):  # fmt: skip
        return Unavailable(
            f"The base template could not be built: no answer from {sources[0].uri} or PyPI; check "
            "the network and the proxy settings, then run `manage.py template build` again.",
            detail=detail,
        )
    if "No space left on device" in detail:
        return Capacity(
            "The base template could not be built: the disk filled up; free some space, then run "
            "`manage.py template build` again.",
            detail=detail,
        )
    errors = [line for line in last if re.match(r"(E:|ERROR|error)", line)] or last[-1:]
    return Unavailable(
        f"The base template could not be built (mmdebstrap exited {code}): "
        f"{' '.join(errors)[:400]}",
        detail=detail,
    )
