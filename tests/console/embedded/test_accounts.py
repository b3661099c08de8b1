"""What the service account can reach, and how commands are wrapped to run as it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.embedded.accounts import Account, Launcher
from console.embedded.errors import CannotStart

NOBODY = Account(name="nobody", uid=65534, gid=65534)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing accounts needs root")


def test_reach_is_judged_by_every_folder_above(tmp_path: Path) -> None:
    inside = tmp_path / "closed/open/file"
    inside.parent.mkdir(parents=True)
    inside.write_text("x")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    inside.chmod(0o644)
    assert NOBODY.may_enter(inside)
    (tmp_path / "closed").chmod(0o700)
    assert not NOBODY.may_enter(inside)
    assert Account(name="me", uid=os.geteuid(), gid=os.getegid()).may_enter(inside)


def test_unreadable_files_are_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root changes accounts")
    (tmp_path / "console").mkdir()
    for name in ("manage.py", "console/settings.py"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o600)
    with pytest.raises(CannotStart, match=rf"chmod -R go\+rX {tmp_path}"):
        Launcher(account=NOBODY, checkout=tmp_path)


@as_root
def test_unprivileged_commands_keep_nothing_of_root(checkout: Path) -> None:
    launcher = Launcher(account=NOBODY, checkout=checkout)
    script = "print(open('/proc/self/status').read())"
    done = subprocess.run(
        launcher.unprivileged("-c", script), capture_output=True, text=True, check=True
    )
    fields = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {"65534"}
    assert set(fields["Gid"].split()) == {"65534"}
    assert fields["Groups"].strip() == ""
    assert fields["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, name


@as_root
def test_children_die_with_their_parent(checkout: Path) -> None:
    launcher = Launcher(account=NOBODY, checkout=checkout)
    command = launcher.unprivileged("-c", "import time; print('up', flush=True); time.sleep(60)")
    parent = (
        "import subprocess,sys,time; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
    )
    parent += "p.stdout.readline(); print(p.pid, flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", parent, *command], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        handle = os.pidfd_open(child)
        process.kill()
    import select

    assert select.select([handle], [], [], 10)[0], "the child outlived its parent"
    os.close(handle)


@pytest.fixture
def checkout() -> Path:
    from django.conf import settings

    return Path(settings.BASE_DIR)
