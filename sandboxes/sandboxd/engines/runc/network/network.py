"""`Network`: lays, changes and removes the network of each sandbox, and finds it again."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Awaitable, Iterable
from pathlib import Path

from sandboxes.errors import Capacity, InvalidRequest, NotFound, SandboxError
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import Connection
from sandboxes.sandboxd.engines.runc.network.connections import connect_inside
from sandboxes.sandboxd.engines.runc.network.host import Host
from sandboxes.sandboxd.engines.runc.network.judging import Denial, Resolve, resolve_on_host
from sandboxes.sandboxd.engines.runc.network.links import Link, remove_link
from sandboxes.sandboxd.engines.runc.network.namespaces import (
    create_namespace,
    in_namespace,
    remove_namespace,
    run_tool,
)
from sandboxes.sandboxd.engines.runc.network.proxy import Proxy
from sandboxes.sandboxd.engines.runc.network.records import Record, Records
from sandboxes.sandboxd.engines.runc.network.resolvers import Resolvers
from sandboxes.sandboxd.engines.runc.network.rules import (
    needs_link,
    needs_proxy,
    sandbox_ruleset,
)
from sandboxes.sandboxd.engines.runc.waiting import run_to_end
from sandboxes.words import gettext_noop as _

__all__ = ["DEFAULT_POOL", "Network"]

log = logging.getLogger(__name__)

DEFAULT_POOL = "10.213.0.0/16"
_PROXY_PORT = 3128
_RESTORE_EVERY_S = 60.0
_PROXY_ONLY = _(
    "Only programs that use the proxy in HTTP_PROXY and HTTPS_PROXY reach the network, as pip, apt, "
    "npm, git and curl do; run sandboxd as root for all others."
)


class Network:
    """`directory` holds the namespaces and records of this sandboxd and has to be on /run or
    another place that a reboot clears. `pool` is cut into pairs of addresses, one a sandbox with
    a link; it may be shared by several sandboxds of a host. Without `links` (no root) all that a
    policy opens is reached through the proxy.

    Safe for concurrent use; work on one sandbox is done in order.
    """

    def __init__(
        self,
        directory: Path,
        *,
        pool: str = DEFAULT_POOL,
        resolvers: Resolvers | None = None,
        resolve: Resolve = resolve_on_host,
        links: bool = True,
    ) -> None:
        tag = hashlib.sha256(os.fsencode(directory)).hexdigest()[:6]
        self._records = Records(directory)
        self._host = Host(tag=tag, pool=ipaddress.IPv4Network(pool))
        self._slots = self._host.pool.num_addresses // 2
        self._next_slot = int(tag, 16) % self._slots
        self._resolvers = resolvers or Resolvers()
        self._resolve = resolve
        self._with_links = links
        self._proxies: dict[str, Proxy] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._links = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    def capabilities(self) -> dict[str, bool]:
        """Named as in `Capabilities`."""
        rules = not self._missing()
        return {
            "outbound_switch": rules,
            "outbound_cidr_lists": rules,
            "outbound_domain_lists": True,
            "network_update": rules,
        }

    def notes(self) -> dict[str, str]:
        """By capability, why one is missing or reduced on this host."""
        if not self._with_links:
            return {"outbound_switch": _PROXY_ONLY}
        if missing := self._missing():
            return {"outbound_switch": f"Sandboxes stay offline; install {' and '.join(missing)}"}
        return {"outbound_switch": self._resolvers.note} if self._resolvers.note else {}

    def _missing(self) -> list[str]:
        """The packages that links need."""
        if not self._with_links:
            return []
        needed = (("nft", "nftables"), ("ip", "iproute2"))
        return [package for tool, package in needed if shutil.which(tool) is None]

    async def start(self, live_ids: Iterable[str]) -> None:
        """Take back what the previous sandboxd laid for these sandboxes, remove all else of it."""
        live = set(live_ids)
        await run_to_end(self._records.load)
        for sandbox_id in await run_to_end(self._records.on_disk):
            record = self._records.get(sandbox_id)
            if sandbox_id not in live or record is None:
                await self.destroy(sandbox_id)
                continue
            try:
                await self._lay(sandbox_id, record, record.policy)
            except Exception:
                log.exception("the network of sandbox %s could not be taken back", sandbox_id)
        if not self._with_links:
            return
        known = {Link.of_slot(self._host, slot).name for slot in self._records.slots()}
        for name in await run_to_end(self._host.link_names):
            if name not in known:
                await run_to_end(remove_link, name)
        if not known:
            await self._host.disable()
        self._keeper = asyncio.create_task(self._keep_host())

    async def aclose(self) -> None:
        """Let go without touching a sandbox; connections through a proxy end."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        proxies = list(self._proxies.values())
        self._proxies.clear()
        for proxy in proxies:
            await proxy.aclose()
        await run_to_end(self._records.leave)

    async def create(self, sandbox_id: str, policy: NetworkPolicy) -> Path:
        """The path of the new namespace, for the container to join. All or nothing."""
        async with self._locks[sandbox_id]:
            record = Record(policy=policy)
            self._records.put(sandbox_id, record)
            namespace = self._records.namespace(sandbox_id)
            try:
                await create_namespace(namespace)
                await self._lay(sandbox_id, record, policy, running=False)
            except BaseException:
                await asyncio.shield(self._remove(sandbox_id))
                raise
            return namespace

    async def apply(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replace the policy of a sandbox. Idempotent. If it fails, the sandbox has lost what the
        new policy forbids, and may not have gained yet what it allows: repeat it."""
        async with self._locks[sandbox_id]:
            await self._lay(sandbox_id, self._record(sandbox_id), policy)

    async def destroy(self, sandbox_id: str) -> None:
        """Idempotent. Nothing of it is mounted or routed when this returns."""
        async with self._locks[sandbox_id]:
            await self._remove(sandbox_id)
        if not self._locks[sandbox_id].locked():
            self._locks.pop(sandbox_id, None)

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        """To a server bound to loopback or to any address. Unavailable if nothing listens."""
        if not 0 < port < 65536:
            raise InvalidRequest(f"{port} is no port; use one from 1 to 65535")
        record = self._record(sandbox_id)
        addresses = ["127.0.0.1"]
        if record.slot is not None:
            addresses.append(str(Link.of_slot(self._host, record.slot).address))
        return await connect_inside(self._records.namespace(sandbox_id), addresses, port)

    def proxy_env(self, sandbox_id: str) -> dict[str, str]:
        """The variables that send programs through the proxy; empty if they need none, or if the
        sandbox's network was lost."""
        record = self._records.get(sandbox_id)
        if record is None or not self._needs_proxy(record.policy):
            return {}
        url = f"http://127.0.0.1:{record.proxy_port}"
        values = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": "localhost,127.0.0.1"}
        return {**values, **{name.lower(): value for name, value in values.items()}}

    def resolv_conf(self, sandbox_id: str) -> str:
        """The same under every policy, so that a change of policy needs no change of files."""
        self._record(sandbox_id)
        return self._resolvers.resolv_conf()

    def recent_denials(self, sandbox_id: str) -> list[Denial]:
        """What the proxy refused lately, oldest first."""
        proxy = self._proxies.get(sandbox_id)
        return proxy.recent_denials() if proxy else []

    async def _keep_host(self) -> None:
        """Administrators reload their firewall, and Docker starts late: both undo what we need."""
        while True:
            await asyncio.sleep(_RESTORE_EVERY_S)
            try:
                await self._host.restore(self._resolvers.addresses)
            except SandboxError as error:
                log.warning("the host's rules could not be restored: %s", error)

    def _record(self, sandbox_id: str) -> Record:
        record = self._records.get(sandbox_id)
        if record is None:
            raise NotFound(f"Sandbox {sandbox_id} has no network; it may have been killed")
        return record

    async def _lay(
        self, sandbox_id: str, record: Record, policy: NetworkPolicy, *, running: bool = True
    ) -> None:
        """Make what is there fit the policy, from any state. What closes comes before what opens."""
        namespace = self._records.namespace(sandbox_id)
        link = self._with_links and needs_link(policy)
        if (serving := self._proxies.get(sandbox_id)) is not None:
            serving.set_policy(policy)
        if not link and record.slot is not None:
            await self._remove_link(sandbox_id, record)
        record.policy = policy
        self._records.put(sandbox_id, record)
        if link:
            await self._lay_link(sandbox_id, record, namespace, running=running)
        # Once there, a proxy stays: programs that were told of it know no other way out.
        proxy = self._needs_proxy(policy) or record.proxy_port is not None
        if proxy and sandbox_id not in self._proxies:
            await self._start_proxy(sandbox_id, record, namespace)

    def _needs_proxy(self, policy: NetworkPolicy) -> bool:
        return needs_proxy(policy) or (not self._with_links and needs_link(policy))

    async def _lay_link(
        self, sandbox_id: str, record: Record, namespace: Path, *, running: bool
    ) -> None:
        async with self._links:
            await self._host.enable(self._resolvers.addresses)
            if record.slot is None:
                record.slot = await self._free_slot()
                self._records.put(sandbox_id, record)
        link = Link.of_slot(self._host, record.slot)
        ruleset = sandbox_ruleset(record.policy, self._resolvers.addresses)

        def load_rules() -> None:
            run_tool("nft", "-f", "-", script=ruleset)

        if not running:  # nothing can use the link before its rules are there
            await _all_of(in_namespace(namespace, load_rules), link.create(namespace))
            return
        await in_namespace(namespace, load_rules)
        if not await link.is_whole(namespace):
            await link.create(namespace)

    async def _remove_link(self, sandbox_id: str, record: Record) -> None:
        if record.slot is None:
            return
        await Link.of_slot(self._host, record.slot).remove()
        async with self._links:
            record.slot = None
            self._records.put(sandbox_id, record)
            if not self._records.slots():
                await self._host.disable()

    async def _free_slot(self) -> int:
        taken = self._records.slots() | await run_to_end(self._host.slots_in_use)
        for step in range(self._slots):
            slot = (self._next_slot + step) % self._slots
            if slot not in taken:
                self._next_slot = (slot + 1) % self._slots
                return slot
        raise Capacity(f"All addresses of {self._host.pool} are in use; delete a sandbox first")

    async def _start_proxy(self, sandbox_id: str, record: Record, namespace: Path) -> None:
        listening: list[socket.socket] = []

        def listen() -> None:
            listening.append(_listen_on(record.proxy_port))

        await in_namespace(namespace, listen)
        proxy = Proxy(record.policy, self._resolve)
        await proxy.serve(listening[0])
        self._proxies[sandbox_id] = proxy
        record.proxy_port = listening[0].getsockname()[1]
        self._records.put(sandbox_id, record)

    async def _stop_proxy(self, sandbox_id: str) -> None:
        if (proxy := self._proxies.pop(sandbox_id, None)) is not None:
            await proxy.aclose()

    async def _remove(self, sandbox_id: str) -> None:
        await self._stop_proxy(sandbox_id)
        record = self._records.get(sandbox_id)
        if record is not None:
            await self._remove_link(sandbox_id, record)
        await run_to_end(remove_namespace, self._records.namespace(sandbox_id))
        self._records.remove(sandbox_id)


async def _all_of(*work: Awaitable[None]) -> None:
    """At once, each to its end; then the first failure is raised."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _listen_on(port: int | None) -> socket.socket:
    """The well-known port, or if a program of the sandbox has it, any. A port that was given out
    before is kept or nothing is: programs know it."""
    for wanted in [port] if port is not None else [_PROXY_PORT, 0]:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", wanted))
            listening.listen(128)
        except OSError as error:
            listening.close()
            failed = error
            continue
        return listening
    raise failed
