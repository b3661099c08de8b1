"""Outbound by name at the `local` backend. Names are resolved on the host, so this sandboxd runs
with a hosts file of its own, in a mount namespace of its own."""

from __future__ import annotations

import dataclasses
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.outside import FIRST, SECOND, outside_servers

pytestmark = pytest.mark.sandbox

NAMES = {FIRST.address: "first.outside.example", SECOND.address: "second.elsewhere.example"}


@pytest.fixture(scope="module")
def sandboxd() -> Iterator[daemons.Daemon]:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as hosts:
        hosts.write(Path("/etc/hosts").read_text())
        hosts.write("".join(f"\n{address} {name}\n" for address, name in NAMES.items()))
        hosts.flush()
        bind = f'mount --bind {shlex.quote(hosts.name)} /etc/hosts && exec "$@"'
        with daemons.start(prefix=("unshare", "--mount", "sh", "-c", bind, "sh")) as daemon:
            yield daemon
            daemon.stop()
            assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("local", {"socket": str(sandboxd.socket)}) as client:
        yield client


@pytest.fixture(scope="module")
def outside(sandboxd: daemons.Daemon) -> Iterator[testing.Outside]:
    with outside_servers(sandboxd.key) as servers:
        yield testing.Outside(
            first=dataclasses.replace(servers.first, name=NAMES[FIRST.address]),
            second=dataclasses.replace(servers.second, name=NAMES[SECOND.address]),
        )


class TestOutboundByName(testing.OutboundNameContract): ...
