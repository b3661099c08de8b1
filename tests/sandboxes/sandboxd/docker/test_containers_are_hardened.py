"""What Docker was told of a container, as Docker tells it, and what a program inside finds."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.base import ExitStatus, Limits
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from sandboxes.sandboxd.engines.runc.bundle import CAPABILITIES
from tests.sandboxes.sandboxd.docker.conftest import Create, container_of
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = pytest.mark.docker

_MB = 1024**2


def _status(text: str) -> dict[str, str]:
    return {k: v.strip() for k, v in (line.split(":", 1) for line in text.splitlines())}


def _host_file(path: str) -> str:
    return Path(path).read_text()


async def test_the_container_is_given_nothing_of_the_host(
    witness: docker.DockerClient, shell: Shell
) -> None:
    attributes = container_of(witness, shell).attrs
    host = attributes["HostConfig"]
    assert attributes["Mounts"] == []
    assert (host["Privileged"], host["PublishAllPorts"]) == (False, False)
    assert not host["PortBindings"]
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("none", "private", "")
    assert host["Devices"] in ([], None)
    assert host["CapDrop"] == ["ALL"]
    assert {f"CAP_{name}" for name in host["CapAdd"]} == set(CAPABILITIES)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Init"] is True
    assert host["RestartPolicy"]["Name"] == "no"


async def test_limits_are_dockers(witness: docker.DockerClient, create: Create) -> None:
    shell = await create(limits=Limits(memory_bytes=64 * _MB, pids=20, cpus=0.5))
    host = container_of(witness, shell).attrs["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (64 * _MB, 64 * _MB)
    assert (host["PidsLimit"], host["NanoCpus"]) == (20, 500_000_000)


async def test_limits_hold_for_commands(create: Create) -> None:
    shell = await create(limits=Limits(memory_bytes=64 * _MB, pids=20))
    done = await shell.run("python3", "-c", "x = b'1' * 200_000_000")
    assert done.exit == ExitStatus(signal=9)
    done = await shell.sh("for i in $(seq 40); do sleep 5 & done; kill $(jobs -p)")
    assert "fork" in done.stderr
    assert (await shell.run("echo", "alive")).stdout == "alive\n"


@pytest.mark.parametrize(("user", "held"), [("root", CAPABILITIES), ("user", {})])
async def test_commands_hold_few_capabilities(
    shell: Shell, user: str, held: dict[str, int]
) -> None:
    status = _status((await shell.run("cat", "/proc/self/status", user=user)).stdout)
    allowed = sum(1 << number for number in held.values())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == allowed
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_the_init_is_confined(witness: docker.DockerClient, shell: Shell) -> None:
    pid = container_of(witness, shell).attrs["State"]["Pid"]
    status = _status(_host_file(f"/proc/{pid}/status"))
    assert int(status["CapBnd"], 16) == sum(1 << number for number in CAPABILITIES.values())
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_root_can_not_change_the_network_or_mount(shell: Shell) -> None:
    script = (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True);"
        "print(c.mount(b'none', b'/mnt', b'tmpfs', 0, None), ctypes.get_errno(),"
        " c.unshare(0x10000000), ctypes.get_errno())"
    )
    assert (await shell.run("python3", "-c", script)).stdout == "-1 1 -1 1\n"
    assert (await shell.sh("echo 1 > /proc/sys/net/ipv4/ip_forward")).code != 0


async def test_the_hosts_own_limits_are_not_changed(shell: Shell) -> None:
    """Commands share the host's user namespace, whose limits are the host's."""
    before = _host_file("/proc/sys/user/max_inotify_instances")
    assert (await shell.run("true")).code == 0
    assert _host_file("/proc/sys/user/max_inotify_instances") == before
    assert int(before) > 128


async def test_pausing_is_refused_with_the_reason(engine: DockerEngine, shell: Shell) -> None:
    assert engine.capabilities.pause is False
    with pytest.raises(Unsupported, match="rebuilt at its next use"):
        await engine.pause(shell.id)
    assert (await shell.run("true")).code == 0
