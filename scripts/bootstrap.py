#!/usr/bin/env python3
"""Make a fresh Debian or Ubuntu ready: system packages by name, then .venv from requirements.lock.

Only the standard library, because nothing else is there yet. Does only what is missing, so that it
takes a moment when all is well. `--for run` (the product), `test` (what the tests add; they run
without, and say what they skipped) or `ci` (all of it, or fail).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "installed.sha256"
OLDEST = (3, 11)
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Package:
    """A Debian package, why it is needed, and the paths or commands any of which shows it is there."""

    name: str
    why: str
    shown_by: tuple[str, ...]


REDIS = Package(
    "redis-server",
    "keeps the sessions' bindings and the work queue",
    ("redis-server", "valkey-server"),
)
RUN = (
    Package("runc", "runs the sandboxes", ("runc",)),
    Package("catatonit", "is the first process of a sandbox", ("catatonit",)),
    Package("nftables", "enforces the sandboxes' network policies", ("nft",)),
    Package("iproute2", "shows and mends the sandboxes' networks", ("ip",)),
    Package("mmdebstrap", "builds the base template", ("mmdebstrap",)),
    Package(
        "debian-archive-keyring",
        "checks the base template's packages",
        ("/usr/share/keyrings/debian-archive-keyring.gpg",),
    ),
    REDIS,
    Package(
        "ca-certificates",
        "lets sandboxes trust what this host trusts",
        (CA_BUNDLE,),
    ),
)
UIDMAP = Package("uidmap", "lets accounts other than root run sandboxes", ("newuidmap",))
TEST = (
    UIDMAP,
    Package("chromium", "runs the tests of the pages", ("chromium", "chromium-browser", "google-chrome")),
    Package("docker.io", "runs the tests of the docker backend", ("dockerd",)),
    Package("gettext", "checks that the translations are complete", ("msgfmt",)),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="purpose", choices=("run", "test", "ci"), default="run")
    purpose = parser.parse_args().purpose
    try:
        python = find_python()
        wanted = list(RUN) + (list(TEST) if purpose == "ci" else [])
        if os.geteuid() != 0:
            wanted.append(UIDMAP)
        if not has_venv(python):
            wanted.append(Package(venv_package(python), "makes the Python environment", ()))
        install_system_packages([package for package in wanted if not is_there(package)])
        install_environment(python)
    except Refused as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"\n{' '.join(map(str, error.cmd))}: exit code {error.returncode}.", file=sys.stderr)
        return 1
    return 0


class Refused(Exception):
    """One sentence for the person at the terminal."""


def is_there(package: Package) -> bool:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return any(
        Path(sign).exists() if sign.startswith("/") else shutil.which(sign, path=path)
        for sign in package.shown_by
    )


def find_python() -> str:
    """The system's own where it is new enough: every user of the machine may run it."""
    for name in ("/usr/bin/python3", "python3.13", "python3.12", "python3.11", "python3"):
        path = shutil.which(name)
        if path and version(path) >= OLDEST:
            return path
    raise Refused(
        "Skillyard needs Python 3.11 or newer: use Debian 12, Ubuntu 24.04 or newer, or install "
        "python3.11 and run this again."
    )


def version(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return tuple(int(part) for part in done.stdout.split())


def has_venv(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import ensurepip, venv"], capture_output=True, check=False
    )
    return done.returncode == 0


def venv_package(python: str) -> str:
    return "python{}.{}-venv".format(*version(python))


def install_system_packages(missing: Sequence[Package]) -> None:
    if not missing:
        return
    names = [package.name for package in missing]
    print("Skillyard needs these system packages, which are not installed:")
    for package in missing:
        print(f"  {package.name:24} {package.why}")
    line = f"apt-get install --no-install-recommends {' '.join(names)}"
    if shutil.which("apt-get") is None:
        raise Refused(
            "This system has no apt-get; install the same things with its own package manager."
        )
    if os.geteuid() != 0:
        if is_there(REDIS) and has_venv(find_python()):
            print(f"Not root, so going on without them. To install them: sudo {line}\n")
            return
        raise Refused(f"Not root, so they cannot be installed from here. Run: sudo {line}")
    if not agreed(line):
        raise Refused(f"Nothing was installed. When you are ready: {line}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], env=environ)
    run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *names], env=environ)
    if "redis-server" in names and Path("/run/systemd/system").is_dir():
        print(
            "Debian started a Redis of its own as a service; Skillyard runs a private one instead. "
            "If nothing else needs Debian's: systemctl disable --now redis-server"
        )


def agreed(line: str) -> bool:
    """Asks on a terminal only; ASSUME_YES=1 answers for scripts."""
    if os.environ.get("ASSUME_YES") or os.environ.get("CI") or not sys.stdin.isatty():
        return True
    return input(f"Run `{line}` now? [Y/n] ").strip().lower() in ("", "y", "yes")


def install_environment(python: str) -> None:
    """.venv with exactly what requirements.lock names; nothing to do while neither changed."""
    made_for = f"{os.path.realpath(python)} {version(python)}\n".encode()
    wanted = hashlib.sha256(made_for + LOCK.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    if not os.access(VENV if VENV.exists() else ROOT, os.W_OK):
        raise Refused(
            f"{VENV} is not up to date, and this account may not change it: run this as its owner, "
            "or in a checkout of your own."
        )
    venv_python = VENV / "bin/python"
    if not venv_python.exists() or version(str(venv_python)) != version(python):
        print(f"Making {VENV.relative_to(ROOT)} with {python} …", flush=True)
        run([python, "-m", "venv", "--clear", str(VENV)])
    uv = next(line.split()[0] for line in LOCK.read_text().splitlines() if line.startswith("uv=="))
    print(f"Installing what {LOCK.name} names …", flush=True)
    environ = {"UV_LINK_MODE": "copy", **os.environ, "VIRTUAL_ENV": str(VENV)}
    if Path(CA_BUNDLE).exists():
        # Both bring certificates of their own, and would not know those that this host adds.
        environ = {"SSL_CERT_FILE": CA_BUNDLE, "PIP_CERT": CA_BUNDLE, **environ}
    pip = [venv_python, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "-q", uv], env=environ)
    sync = ["pip", "sync", "-q", "--compile-bytecode", "--python", venv_python, LOCK]
    run([VENV / "bin/uv", *sync], env=environ)
    STAMP.write_text(wanted)


def run(command: Sequence[str | Path], *, env: dict[str, str] | None = None) -> None:
    sys.stdout.flush()
    subprocess.run(command, check=True, env=env, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
