"""Who the processes run as: sandboxd as root, everything else as the service account."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from console.embedded.errors import CannotStart

__all__ = ["SERVICE_NAME", "Account", "Launcher", "ensure_service_account"]

SERVICE_NAME = "skillyard"
_APP_MOUNT = Path("/run/skillyard/app")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of the unprivileged processes; the present one where we are not root."""

    name: str
    uid: int
    gid: int

    def own(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def may_enter(self, path: Path) -> bool:
        """Whether it can reach `path` through every folder above it, and read it, by mode bits."""
        path = path.resolve()
        return all(self._has(parent, 0o1) for parent in path.parents) and self._has(
            path, 0o5 if path.is_dir() else 0o4
        )

    def _has(self, path: Path, wanted: int) -> bool:
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid == self.uid:
            mode >>= 6
        elif found.st_gid == self.gid:
            mode >>= 3
        return mode & wanted == wanted


def ensure_service_account() -> Account:
    """As root the system account `skillyard`, made if it is missing; else the present one."""
    if os.geteuid() != 0:
        present = pwd.getpwuid(os.geteuid())
        return Account(name=present.pw_name, uid=present.pw_uid, gid=present.pw_gid)
    try:
        entry = pwd.getpwnam(SERVICE_NAME)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home"]
        command += ["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SERVICE_NAME]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotStart(
                f"The account {SERVICE_NAME!r} could not be made ({done.stderr.strip()}); make it "
                f"yourself: `useradd --system {SERVICE_NAME}`."
            ) from None
        entry = pwd.getpwnam(SERVICE_NAME)
    if entry.pw_uid == 0:
        raise CannotStart(f"The account {SERVICE_NAME!r} is root; it must be an unprivileged one.")
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=grp.getgrgid(entry.pw_gid).gr_gid)


class Launcher:
    """Turns a Python module into the command that runs it as the right account.

    Every process is told by the kernel when the supervisor dies, however it dies. A checkout that
    the service account cannot reach (a clone under /root) is shown to it at another path, in a
    mount namespace of its own: nothing of it appears elsewhere on the host.
    """

    def __init__(self, *, account: Account, checkout: Path) -> None:
        self.account = account
        self.checkout = checkout
        self._mounted = False
        if os.geteuid() == 0:
            self._find_way_in()

    @property
    def app(self) -> Path:
        """The checkout as the service account sees it."""
        return _APP_MOUNT if self._mounted else self.checkout

    def privileged(self, *args: str) -> list[str]:
        return ["setpriv", "--pdeathsig=TERM", "--", sys.executable, *args]

    def unprivileged(self, *args: str, told_by: str = "TERM") -> list[str]:
        """`args` follow the Python interpreter. `told_by` is the signal of the supervisor's death."""
        python = Path(sys.executable)
        if self._mounted:
            python = self.app / python.relative_to(self.checkout)
        return self.unprivileged_program(str(python), *args, told_by=told_by)

    def unprivileged_program(self, *command: str, told_by: str = "TERM") -> list[str]:
        drop: list[str] = []
        if os.geteuid() == 0:
            drop = [f"--reuid={self.account.uid}", f"--regid={self.account.gid}"]
            drop += ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        demoted = ["setpriv", *drop, "--no-new-privs", f"--pdeathsig={told_by}", "--", *command]
        if not self._mounted:
            return demoted
        script = 'mount --bind "$1" "$2" && cd "$2" && shift 2 && exec "$@"'
        mounting = ["sh", "-c", script, "sh", str(self.checkout), str(self.app)]
        return ["unshare", "--mount", "--propagation=private", "--", *mounting, *demoted]

    def _find_way_in(self) -> None:
        # As the account would see it, the interpreter behind .venv/bin/python must be readable too.
        interpreter = Path(sys.executable).resolve()
        libraries = Path(os.__file__).resolve()
        if not (self.account.may_enter(interpreter) and self.account.may_enter(libraries)):
            raise CannotStart(
                f"The account {self.account.name!r} cannot read {interpreter}, which .venv was made "
                "with: `rm -rf .venv` and run `make up` again, which makes it with the system's "
                "own Python."
            )
        if self.account.may_enter(self.checkout) and self._files_are_readable():
            return
        if not self._files_are_readable():
            raise CannotStart(
                f"The account {self.account.name!r} cannot read the files in {self.checkout}: run "
                f"`chmod -R go+rX {self.checkout}`."
            )
        if not Path(sys.executable).is_relative_to(self.checkout):
            raise CannotStart(
                f"The account {self.account.name!r} cannot reach {self.checkout}: move it to "
                "/opt/skillyard, or run it with the .venv inside it."
            )
        self._mounted = True
        _APP_MOUNT.mkdir(mode=0o755, parents=True, exist_ok=True)
        done = subprocess.run(
            [*self.unprivileged("-c", "import django")],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if done.returncode != 0:
            raise CannotStart(
                f"The account {self.account.name!r} cannot reach {self.checkout}, and showing it "
                f"elsewhere failed ({done.stderr.strip()[-200:]}): move it to /opt/skillyard."
            )

    def _files_are_readable(self) -> bool:
        """By their own mode bits, wherever the checkout is."""
        import django

        probes = [self.checkout, self.checkout / "console", self.checkout / "manage.py"]
        probes += [self.checkout / "console/settings.py", Path(django.__file__)]
        probes += [Path(sys.prefix), Path(sys.prefix) / "bin", Path(sys.prefix) / "pyvenv.cfg"]
        return all(self.account._has(p, 0o5 if p.is_dir() else 0o4) for p in probes)


def find_program(*names: str) -> str | None:
    """The first of `names` on PATH or in the system folders that plain users' PATHs lack."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return next((found for name in names if (found := shutil.which(name, path=path))), None)
