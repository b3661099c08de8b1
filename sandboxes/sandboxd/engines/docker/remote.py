"""Reaching into containers of a remote engine, by Docker's API alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, Internal, NotFound, Terminal, Unavailable, Unsupported
from sandboxes.network import ANYWHERE, NetworkPolicy
from sandboxes.sandboxd.engines.base import (
    Connection,
    FileSystem,
    ProcessSpec,
    RunningProcess,
    Usage,
)
from sandboxes.sandboxd.engines.docker.api import Api, ExecStream
from sandboxes.sandboxd.engines.docker.reach import Reach
from sandboxes.sandboxd.engines.docker.records import ContainerRecord
from sandboxes.sandboxd.engines.docker.remote_exec import announced, start
from sandboxes.sandboxd.engines.docker.remote_files import RemoteFileSystem
from sandboxes.words import gettext_noop as _

__all__ = ["RemoteReach"]

_NO_LISTS = _(
    "A remote Docker knows only on and off: its rules can't be set from here, and an open sandbox "
    "reaches whatever the Docker host reaches. Run sandboxd beside Docker for lists."
)
_OPEN_RANGES = _(
    "An open sandbox reaches the private network of the Docker host, its metadata service included: "
    "these can't be closed through Docker's API. Close them on that host (the DOCKER-USER chain), keep "
    "outbound off, or run sandboxd beside Docker."
)
_DIAL = """
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
echo open >&2
main=$$
{ cat <&3; kill "$main"; } &
cat >&3
kill $!
"""


class RemoteReach(Reach):
    """`key` names the network of the sandboxes whose outbound switch is on."""

    def __init__(self, api: Api, *, key: str) -> None:
        self._api = api
        self._network = f"skillyard-{key}"
        self._key = key
        self._known: set[str] = set()

    def capabilities(self) -> Capabilities:
        return Capabilities(
            files=True,
            snapshots=True,
            snapshot_keeps_processes=False,
            templates=True,
            pause=False,
            idle_timeout=True,
            outbound_switch=True,
            outbound_cidr_lists=False,
            outbound_domain_lists=False,
            inbound_switch=True,
            inbound_token=True,
            network_update=True,
            terminal=True,
            resource_limits=True,
            notes={
                "outbound_switch": _NO_LISTS,
                "private_ranges_closed": _OPEN_RANGES,
                "outbound_cidr_lists": _NO_LISTS,
                "outbound_domain_lists": _NO_LISTS,
                "files": _("Files at a remote Docker have no metadata and can't be watched."),
            },
        )

    def prepare(self) -> None:
        """Nothing of this host is used."""

    async def start(self, live: Iterable[str]) -> None:
        options = {"com.docker.network.bridge.enable_icc": "false"}
        with contextlib.suppress(Conflict):  # it is there already
            await self._api.create_network(
                self._network, options=options, labels={"skillyard.host": self._key}
            )

    async def aclose(self) -> None:
        if not self._known:
            with contextlib.suppress(NotFound, Unavailable, Conflict):
                await self._api.remove_network(self._network)

    def host_config(self, policy: NetworkPolicy) -> Mapping[str, Any]:
        return {"NetworkMode": self._network if _outbound(policy) else "none"}

    async def adopt(self, record: ContainerRecord, state: Mapping[str, Any]) -> bool:
        self._known.add(record.id)
        return True

    async def attach(self, record: ContainerRecord, state: Mapping[str, Any]) -> None:
        if not state["Running"]:
            raise Internal(f"The container of {record.id} ended at once; see `docker logs`.")
        self._known.add(record.id)

    async def detach(self, sandbox_id: str) -> None:
        self._known.discard(sandbox_id)

    async def dead(self, record: ContainerRecord) -> bool:
        try:
            state = (await self._api.inspect(record.container_id))["State"]
        except NotFound:
            return True
        return not state["Running"] or state["StartedAt"] != record.started_at

    async def spawn(self, record: ContainerRecord, process: ProcessSpec) -> RunningProcess:
        env = {**record.env, **process.env}
        try:
            return await start(self._api, record.container_id, process, env)
        except (NotFound, Conflict) as error:
            raise Terminal(f"The sandbox {record.id} has died; create a new one.") from error

    def files(self, record: ContainerRecord) -> FileSystem:
        return RemoteFileSystem(self._api, record.container_id)

    async def set_network(self, record: ContainerRecord, policy: NetworkPolicy) -> None:
        wanted = self._network if _outbound(policy) else "none"
        found = (await self._api.inspect(record.container_id))["NetworkSettings"]["Networks"]
        for name in found:
            if name != wanted:
                await self._api.disconnect(name, record.container_id)
        if wanted not in found:
            await self._api.connect(wanted, record.container_id)

    async def dial(self, record: ContainerRecord, port: int) -> Connection:
        argv = ("bash", "-c", _DIAL, "bash", str(port))
        stream = await self._api.exec(record.container_id, argv, user="0:0", env={}, stdin=True)
        is_open, begun, _ = await announced(stream, b"open\n")
        if not is_open:
            await stream.aclose()
            raise Unavailable(
                f"Nothing listens on port {port} of the sandbox; start a server there first"
            )
        return _ExecConnection(stream, begun)

    async def usage(self, record: ContainerRecord) -> Usage:
        raise Unsupported("Metrics of a remote Docker are not read; ask that host.")


class _ExecConnection(Connection):
    def __init__(self, stream: ExecStream, begun: bytes) -> None:
        self._stream = stream
        self._rest = begun

    async def read(self, max_bytes: int = 65536) -> bytes:
        while not self._rest:
            chunk = await self._stream.read()
            if chunk is None:
                return b""
            if chunk[0] == 1:
                self._rest = chunk[1]
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _outbound(policy: NetworkPolicy) -> bool:
    if policy.allow or set(policy.deny) - {ANYWHERE}:
        raise Unsupported(_NO_LISTS)
    return not policy.closed_by_default
