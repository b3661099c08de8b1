"""What a hostile program in a sandbox can not do, tried from inside, and checked from outside."""

from __future__ import annotations

import ctypes
import json
import os
import re
import textwrap
from pathlib import Path

import pytest

from sandboxes.sandboxd.engines.runc.bundle import CAPABILITIES, ID_OFFSET
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from tests.leaks import parent_cgroup
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = pytest.mark.sandbox

_EPERM, _ENOSYS = 1, 38


async def _python(shell: Shell, script: str, *, user: str = "root") -> str:
    done = await shell.run("python3", "-c", textwrap.dedent(script), user=user)
    assert done.code == 0, done.stderr
    return done.stdout


def _status(text: str) -> dict[str, str]:
    return {k: v.strip() for k, v in (line.split(":", 1) for line in text.splitlines())}


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _init_pid(engine: RuncEngine, shell: Shell) -> int:
    record = engine.data_dir / "sandboxes" / shell.id / "engine.json"
    return int(json.loads(record.read_text())["init_pid"])


async def test_commands_of_root_hold_few_capabilities(shell: Shell) -> None:
    status = _status((await shell.run("cat", "/proc/self/status")).stdout)
    allowed = sum(1 << number for number in CAPABILITIES.values())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == allowed
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_commands_of_others_hold_none(shell: Shell) -> None:
    status = _status((await shell.run("cat", "/proc/self/status", user="user")).stdout)
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_init_holds_none(engine: RuncEngine, shell: Shell) -> None:
    status = _status(_proc(_init_pid(engine, shell), "status"))
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert set(status["Uid"].split()) == {str(ID_OFFSET)}


async def test_root_is_nobody_on_the_host(engine: RuncEngine, shell: Shell) -> None:
    process = await shell.start("sleep", "60")
    try:
        status = _status(_proc(_host_pid(engine, shell, process.pid), "status"))
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(ID_OFFSET)}
        assert status["Groups"] == str(ID_OFFSET)
    finally:
        await process.kill_tree()


def _host_pid(engine: RuncEngine, shell: Shell, pid: int) -> int:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "cgroup").read_text()
                inner = _status((folder / "status").read_text())["NSpid"].split()
            except OSError:
                continue
            if shell.id in text and inner[-1] == str(pid) and len(inner) == 2:
                return int(folder.name)
    raise AssertionError("not found")


async def test_commands_lie_in_every_cgroup_of_their_sandbox(
    engine: RuncEngine, shell: Shell
) -> None:
    process = await shell.start("sleep", "60")
    text = _proc(_host_pid(engine, shell, process.pid), "cgroup")
    own = f"/{parent_cgroup(engine.data_dir)}/{shell.id}"
    for line in text.splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            assert path.startswith(f"{own}/exec-")
        else:
            assert path == own
    await process.kill_tree()


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "umount /proc",
        "unshare -m true",
        "unshare -U true",
        "nsenter -t 1 -m true",
    ],
)
async def test_mounts_and_namespaces_are_refused(shell: Shell, command: str) -> None:
    done = await shell.sh(command)
    assert done.code != 0
    assert re.search("permitted|denied|superuser", done.stderr)


@pytest.mark.parametrize(
    "number",
    [
        *(165, 166, 155, 272, 308, 250, 248, 249, 321, 298, 323, 425, 246, 320, 304, 175, 176),
        *(169, 167, 163, 312, 428, 429, 430, 432, 438, 442, 103, 139, 227, 159, 172, 173, 300),
        303,
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="call numbers of x86_64")
async def test_dangerous_calls_are_refused(shell: Shell, number: int) -> None:
    """mount, umount2, pivot_root, unshare, setns, keyctl, add_key, request_key, bpf,
    perf_event_open, userfaultfd, io_uring_setup, kexec_load, kexec_file_load, open_by_handle_at,
    init_module, delete_module, reboot, swapon, acct, kcmp, open_tree, move_mount, fsopen, fsmount,
    pidfd_getfd, mount_setattr, syslog, sysfs, clock_settime, adjtimex, iopl, ioperm, fanotify_init,
    name_to_handle_at"""
    out = await _python(
        shell,
        f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        result = libc.syscall({number}, *[ctypes.c_long(-1)] * 5)
        print(result, ctypes.get_errno())
        """,
    )
    assert out.split() == ["-1", str(_EPERM)]


async def test_new_namespaces_and_foreign_sockets_are_refused(shell: Shell) -> None:
    out = await _python(
        shell,
        """
        import ctypes, socket
        libc = ctypes.CDLL(None, use_errno=True)
        for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000):
            assert libc.syscall(56, ctypes.c_long(flag | 17), 0, 0, 0, 0) == -1
        assert libc.syscall(435, 0, 0) == -1 and ctypes.get_errno() == 38
        for family in (40, 38, 17, 44):  # vsock, alg, packet, xdp
            try:
                socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue
            raise SystemExit(family)
        socket.socket(socket.AF_INET), socket.socket(socket.AF_INET6), socket.socket(socket.AF_UNIX)
        print("ok")
        """,
    )
    assert out == "ok\n"


async def test_user_can_not_write_what_root_owns(shell: Shell) -> None:
    done = await shell.sh(
        "mkdir -p /opt/weknora/tenant/skills/x && echo a > /opt/weknora/tenant/skills/x/f",
        user="root",
    )
    assert done.code == 0
    done = await shell.sh(
        "touch /opt/weknora/tenant/skills/y; echo b > /opt/weknora/tenant/skills/x/f; rm -rf /etc/passwd",
        user="user",
    )
    assert done.stderr.count("Permission denied") == 3


async def test_no_escalation_through_set_uid_programs(shell: Shell) -> None:
    await shell.sh("cp /usr/bin/id /usr/local/bin/rootid && chmod 4755 /usr/local/bin/rootid")
    done = await shell.run("/usr/local/bin/rootid", "-u", user="user")
    assert done.stdout == "1000\n"
    assert (await shell.run("sudo", "-n", "id", user="user")).code != 0


async def test_host_is_out_of_sight(shell: Shell) -> None:
    pids = [int(p) for p in (await shell.sh("ls /proc | grep -E '^[0-9]+$'")).stdout.split()]
    assert len(pids) <= 4
    assert 1 in pids
    assert (await shell.run("hostname")).stdout.strip() == shell.id
    assert (
        await shell.sh(
            "ls /sys/fs /sys/kernel /sys/class /sys/block; ls /dev/vda /dev/kmsg /dev/mem"
        )
    ).stdout == ""
    assert (
        await shell.sh("cat /proc/kallsyms /proc/keys /proc/timer_list | wc -c")
    ).stdout == "0\n"


async def test_kernel_settings_are_read_only(shell: Shell) -> None:
    done = await shell.sh("echo 1 > /proc/sys/kernel/panic; touch /sys/x")
    assert done.stderr.count("Read-only file system") == 2


async def test_device_nodes_can_not_be_made(shell: Shell) -> None:
    done = await shell.sh("mknod /tmp/disk b 254 0 || mknod /tmp/mem c 1 1")
    assert done.code != 0
    assert "Operation not permitted" in done.stderr


async def test_process_on_its_way_in_can_not_be_inspected(shell: Shell) -> None:
    """A spy of root stops commands while they are still the spawner's child, and looks."""
    spy = await shell.start("python3", "-c", _SPY)
    output = spy.output()
    assert await anext(output) == ("stdout", b"up\n")
    for _ in range(50):
        await shell.run("true")
    await shell.sh("touch /tmp/stop")
    caught, opened = (await anext(output))[1].decode().split(" ", 1)
    assert int(caught) > 0, "the spy saw no command on its way in"
    assert opened == "[]\n"


_SPY = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
caught, opened = 0, []
print("up", flush=True)
while not os.path.exists("/tmp/stop"):
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (1, os.getpid()):
            continue
        try:
            os.kill(int(name), signal.SIGSTOP)
            folder = f"/proc/{name}"
            while open(f"{folder}/stat").read().rsplit(")", 1)[1].split()[0] not in "TZX":
                pass
            if b"spawner" in open(f"{folder}/cmdline", "rb").read():
                caught += 1
                for what in ("mem", "environ", "maps", "auxv", "io", "syscall", "stack"):
                    try:
                        os.read(os.open(f"{folder}/{what}", os.O_RDONLY), 1)
                        opened.append(what)
                    except OSError:
                        pass
                for what in ("exe", "cwd", "root", "fd/0", "ns/user"):
                    try:
                        os.readlink(f"{folder}/{what}")
                        opened.append(what)
                    except OSError:
                        pass
                if libc.ptrace(0x4206, int(name), 0, 0) == 0:
                    opened.append("ptrace")
        except OSError:
            pass
        try:
            os.kill(int(name), signal.SIGCONT)
        except OSError:
            pass
print(caught, opened)
"""


async def test_binary_of_the_spawner_can_not_be_changed_through_a_command(shell: Shell) -> None:
    """CVE-2019-5736: a command that is /proc/self/exe gets hold of what started it."""
    done = await shell.sh("ln -s /proc/self/exe /tmp/again && exec 3>/tmp/again", user="root")
    assert done.code == 0 or "busy" in done.stderr or "denied" in done.stderr
    done = await shell.run(
        "/proc/self/exe", "-c", "import os; print(os.open('/proc/self/exe', os.O_RDWR))"
    )
    assert done.code != 0


async def test_working_directory_can_not_be_a_descriptor_of_the_host(shell: Shell) -> None:
    """CVE-2024-21626: a working directory reached through a descriptor that leaked."""
    from sandboxes.errors import InvalidRequest

    for number in range(3, 30):
        with pytest.raises(InvalidRequest):
            await shell.run("pwd", cwd=f"/proc/self/fd/{number}")


async def test_compiled_filter_is_the_one_that_runc_gets() -> None:
    from sandboxes.sandboxd.engines.runc import seccomp

    program = seccomp.compiled()
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096
    profile = seccomp.oci(os.uname().machine)
    refused = next(r for r in profile["syscalls"] if r["action"] == "SCMP_ACT_ERRNO")["names"]
    allowed = [
        n for r in profile["syscalls"] if r["action"] == "SCMP_ACT_ALLOW" for n in r["names"]
    ]
    assert not set(refused) & set(allowed)
    assert ctypes.sizeof(ctypes.c_void_p) == 8
