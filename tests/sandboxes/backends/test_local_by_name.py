"""Outbound by name at the `local` backend. Names are resolved on the host, so this sandboxd runs
with a hosts file of its own, in a mount namespace of its own."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.outside import outside_servers

pytestmark = pytest.mark.sandbox

NAMES = ("first.outside.example", "second.elsewhere.example")


@pytest.fixture(scope="module")
def outside() -> Iterator[testing.Outside]:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with outside_servers(names=NAMES) as servers:
        yield servers


@pytest.fixture(scope="module")
def sandboxd(outside: testing.Outside) -> Iterator[daemons.Daemon]:
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as hosts:
        hosts.write(Path("/etc/hosts").read_text())
        for target in (outside.first, outside.second):
            hosts.write(f"\n{target.address} {target.name}\n")
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


class TestOutboundByName(testing.OutboundNameContract): ...
