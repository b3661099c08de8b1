"""The eight points that a backend has to keep for sessions and releases to work on it, tried for real.

Each point makes its own sandboxes and deletes them. What a backend says that it can't do is skipped with
its own note: that is a difference, and no failure. What can't be told from here is skipped too, and says why.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx

from sandboxes.capabilities import Capabilities
from sandboxes.client import InboundAccess, SandboxClient, SnapshotStore
from sandboxes.errors import NotFound, SandboxError
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    ExecRequest,
    ListFilter,
    OnTimeout,
    Sandbox,
    SandboxState,
    TimeoutPolicy,
)
from sandboxes.wire.messages import ENVD_PORT

__all__ = ["POINTS", "Outcome", "Point", "run_checklist"]

log = logging.getLogger(__name__)

POINT_LIMIT_S = 180.0
_CLEANUP_LIMIT_S = 30.0
_DIAL_LIMIT_S = 20.0
_LIFE_S = 600.0
_SNAPSHOT_BOUND = 20_000
_OUTSIDE = (("1.1.1.1", 443), ("223.5.5.5", 443), ("8.8.8.8", 443))
_PORT = 8077
_SERVE = (
    f"mkdir -p /tmp/check && cd /tmp/check && echo served > index.html && "
    f"(setsid nohup python3 -m http.server {_PORT} >/dev/null 2>&1 </dev/null &) ; "
    f"for n in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/{_PORT}) 2>/dev/null && exit 0; sleep 0.1; done; "
    "exit 1"
)
_REACH = "timeout 4 bash -c 'exec 3<>/dev/tcp/{host}/{port}' 2>/dev/null"
_TICKER = (
    "setsid nohup bash -c 'while :; do echo >> /tmp/tick; sleep 0.1; done' "
    ">/dev/null 2>&1 </dev/null & echo $! > /tmp/ticker"
)


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`evidence` is what was seen, line by line; `reason` why it failed or was skipped, as a sentence.
    `expected` says that it was skipped because the backend doesn't claim to do that."""

    number: int
    name: str
    title: str
    outcome: Outcome
    evidence: tuple[str, ...] = ()
    reason: str = ""
    expected: bool = False
    took_s: float = 0.0


class _Failed(Exception):
    """A point is not kept; the text is the sentence."""


class _Skipped(Exception):
    def __init__(self, reason: str, *, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(slots=True)
class _Run:
    """One point's sandboxes, snapshots and evidence."""

    client: SandboxClient
    template: str
    tags: Mapping[str, str]
    seen: list[str] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def note(self, text: str) -> None:
        self.seen.append(text)

    def need(self, *capabilities: str) -> None:
        able: Capabilities = self.client.capabilities
        for name in capabilities:
            if not getattr(able, name):
                why = able.notes.get(name, "It says no more about it.")
                raise _Skipped(
                    f"This backend has no {name.replace('_', ' ')}. {why}", expected=True
                )

    async def sandbox(
        self,
        *,
        template: str | None = None,
        outbound: bool = False,
        inbound: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> Sandbox:
        pausing = self.client.capabilities.pause
        made = await self.client.create(
            CreateRequest(
                template=template or self.template,
                network=NetworkPolicy(outbound=outbound, inbound=inbound),
                timeout=TimeoutPolicy(
                    timeout_s=_LIFE_S, on_timeout=OnTimeout.PAUSE if pausing else OnTimeout.KILL
                ),
                metadata={**self.tags, **(tags or {})},
            )
        )
        self.stack.push_async_callback(self._delete, made.id)
        return made

    async def _delete(self, sandbox_id: str) -> None:
        try:
            await self.client.delete(sandbox_id)
        except NotFound:
            return
        except SandboxError as error:
            log.warning("Sandbox %s of a check is left to the reaper: %s", sandbox_id, error)

    async def snapshot(self, box: Sandbox, name: str) -> str:
        taken = await self.store.create(box.id, name=name)
        self.stack.push_async_callback(self._delete_snapshot, taken.id)
        return taken.id

    async def _delete_snapshot(self, snapshot_id: str) -> None:
        try:
            await self.store.delete(snapshot_id)
        except SandboxError as error:
            log.warning("Snapshot %s of a check could not be deleted: %s", snapshot_id, error)

    @property
    def store(self) -> SnapshotStore:
        self.need("snapshots")
        store = self.client.snapshots
        assert store is not None  # noqa: S101 - as the capabilities say
        return store

    async def text(self, box: Sandbox, script: str, *, user: str = "user") -> str:
        argv = ("/bin/bash", "-c", script)
        result = await self.client.run(box, ExecRequest(argv=argv, user=user, timeout_s=60))
        if not result.ok:
            said = result.stderr.decode(errors="replace").strip()[:200]
            raise _Failed(f"A command ended with {result.exit_code}: {said or script[:80]}.")
        return result.stdout.decode(errors="replace").strip()

    async def pause(self, box: Sandbox) -> None:
        self.need("pause")
        assert self.client.pausing is not None  # noqa: S101 - as the capabilities say
        await self.client.pausing.pause(box.id)

    async def wake(self, box: Sandbox) -> Sandbox:
        return await self.client.connect(box.id, traffic_token=box.traffic_token, timeout_s=_LIFE_S)

    def expect(self, holds: bool, seen: str, otherwise: str) -> None:
        if not holds:
            raise _Failed(otherwise)
        self.note(seen)


Check = Callable[[_Run], Awaitable[None]]


async def _starts_from_a_snapshot(run: _Run) -> None:
    box = await run.sandbox()
    mark = uuid.uuid4().hex
    await run.text(box, f"echo {mark} > /home/user/mark")
    snapshot = await run.snapshot(box, f"check-{mark[:12]}")
    run.note(f"snapshot {snapshot} of sandbox {box.id}")
    second = await run.sandbox(template=snapshot)
    found = await run.text(second, "cat /home/user/mark")
    run.expect(found == mark, "a new sandbox from its id has the file", "The file is missing.")
    if run.client.templates is None:
        run.note("templates are not listed here")
        return
    listed = [item.id async for item in run.client.templates.list()]
    run.expect(
        snapshot not in listed,
        f"{len(listed)} templates are listed, and the snapshot is not among them",
        "The snapshot is listed among the templates, where somebody would choose it as a base.",
    )


async def _source_stays_usable(run: _Run) -> None:
    box = await run.sandbox()
    await run.snapshot(box, f"check-{uuid.uuid4().hex[:12]}")
    run.expect(
        await run.text(box, "echo usable") == "usable",
        "the source runs commands after its snapshot",
        "The source of the snapshot runs no commands any more.",
    )
    if not run.client.capabilities.pause:
        run.note("snapshots of a paused sandbox: this backend can't pause")
        return
    await run.pause(box)
    taken = await run.snapshot(box, f"check-{uuid.uuid4().hex[:12]}")
    run.note(f"a paused sandbox gave snapshot {taken}")
    awake = await run.wake(box)
    run.expect(
        await run.text(awake, "echo awake") == "awake", "it woke afterwards", "It doesn't wake."
    )


async def _pause_keeps_memory(run: _Run) -> None:
    run.need("pause")
    box = await run.sandbox()
    await run.text(box, f"echo kept > /tmp/kept; {_TICKER}")
    pid = await run.text(box, "sleep 0.5; cat /tmp/ticker")
    await run.pause(box)
    state = (await run.client.get(box.id)).state
    run.expect(state is SandboxState.PAUSED, "it is told as paused", f"It is told as {state}.")
    listed = [info.id async for info in run.client.list(ListFilter(metadata=run.tags))]
    if box.id in listed:
        run.note("it is listed while paused")
    else:
        run.note("it is not listed while paused, but found by its id")
    awake = await run.wake(box)
    kept = await run.text(awake, "cat /tmp/kept")
    run.expect(kept == "kept", "its file is there after waking", "Its file is gone after waking.")
    script = f"kill -0 {int(pid)} && a=$(wc -c < /tmp/tick) && sleep 1 && test $a -lt $(wc -c < /tmp/tick)"
    await run.text(awake, script)
    run.note(f"its background process {int(pid)} goes on after waking")


async def _metadata_finds_it(run: _Run) -> None:
    session, other = uuid.uuid4().hex, uuid.uuid4().hex
    odd = "a b/中文 & x=y+%"
    box = await run.sandbox(tags={"check_session": session, "check_odd": odd})
    await run.sandbox(tags={"check_session": other})
    info = await run.client.get(box.id)
    run.expect(
        info.metadata.get("check_odd") == odd,
        "odd characters come back as they were",
        f"The metadata came back as {info.metadata.get('check_odd')!r}.",
    )
    wanted = {**run.tags, "check_session": session}
    found = [info.id async for info in run.client.list(ListFilter(metadata=wanted))]
    run.expect(
        found == [box.id], "all its tags together find it and nothing else", f"Found {found}."
    )
    both = [info.id async for info in run.client.list(ListFilter(metadata=run.tags))]
    run.expect(len(set(both)) >= 2, f"the common tags find {len(both)}", "They find too few.")


async def _switches_hold(run: _Run) -> None:
    run.need("outbound_switch")
    reached: dict[bool, bool] = {}
    for outbound in (True, False):
        for inbound in (True, False):
            if inbound and not run.client.capabilities.inbound_switch:
                run.note("inbound on: this backend has no inbound switch")
                continue
            box = await run.sandbox(outbound=outbound, inbound=inbound)
            where = await _reaches(run, box)
            reached[outbound] = reached.get(outbound, False) or where is not None
            label = f"outbound {'on' if outbound else 'off'}, inbound {'on' if inbound else 'off'}"
            run.note(f"{label}: {'reaches ' + where if where else 'reaches nothing outside'}")
            if not outbound and where is not None:
                raise _Failed(f"With outbound off it still reaches {where}.")
            await _check_inbound(run, box, inbound=inbound)
    if not reached.get(True):
        run.note("outbound on could not be shown: nothing outside answers from here at all")
    resolver = await run.text(box, "grep -m1 ^nameserver /etc/resolv.conf || echo none")
    run.note(f"names are resolved by {resolver.removeprefix('nameserver').strip()}")


async def _reaches(run: _Run, box: Sandbox) -> str | None:
    for host, port in _OUTSIDE:
        script = _REACH.format(host=host, port=port) + " && echo yes || echo no"
        if await run.text(box, script) == "yes":
            return f"{host}:{port}"
    return None


async def _check_inbound(run: _Run, box: Sandbox, *, inbound: bool) -> None:
    if run.client.inbound is None or not run.client.capabilities.inbound_token:
        run.note("its ports cannot be reached from outside on this backend")
        return
    await run.text(box, _SERVE)
    bare = await _dial(run.client.inbound, box, _PORT)
    if inbound:
        run.expect(bare == 200, "its port is open to all", f"Its open port answers {bare}.")
        return
    run.expect(bare == 403, "its port is closed to strangers", f"Its closed port answers {bare}.")
    known = await _dial(run.client.inbound, box, _PORT, token=box.traffic_token)
    run.expect(known == 200, "its token opens the port", f"With its token the port says {known}.")


async def _dial(
    access: InboundAccess, box: Sandbox, port: int, *, token: str | None = None, path: str = "/"
) -> int:
    endpoint = access.endpoint(box, port)
    headers = dict(endpoint.headers)
    if token is not None:
        headers[InboundAccess.TOKEN_HEADER] = token
    transport = httpx.AsyncHTTPTransport(uds=endpoint.socket_path, trust_env=False)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        try:
            url = endpoint.url.rstrip("/") + path
            return (await http.get(url, headers=headers, timeout=_DIAL_LIMIT_S)).status_code
        except httpx.HTTPError as error:
            raise _Failed(f"The port {port} cannot be dialled: {type(error).__name__}.") from error


async def _users_and_uploads(run: _Run) -> None:
    box = await run.sandbox()
    uid = await run.text(box, "id -u")
    run.expect(
        uid != "0", f"commands run as uid {uid}", "Commands run as root, though not asked to."
    )
    run.expect(
        await run.text(box, "id -u", user="root") == "0",
        "root is there for installs",
        "Commands cannot run as root, so nothing could be installed.",
    )
    run.need("files")
    assert run.client.files is not None  # noqa: S101 - as the capabilities say
    data = bytes(range(256)) * 64
    await run.client.files.write(box, "/home/user/check.bin", data)
    async with run.client.files.read(box, "/home/user/check.bin") as chunks:
        back = b"".join([chunk async for chunk in chunks])
    run.expect(
        back == data, f"{len(data)} bytes came back as they went", "A file came back changed."
    )


async def _envd_answers(run: _Run) -> None:
    if run.client.inbound is None:
        raise _Skipped("This backend serves no ports from outside.", expected=True)
    box = await run.sandbox()
    status = await _dial(
        run.client.inbound, box, ENVD_PORT, token=box.traffic_token, path="/health"
    )
    run.expect(
        200 <= status < 300,
        f"GET :{ENVD_PORT}/health answers {status}",
        f"GET :{ENVD_PORT}/health answers {status}; does the template carry envd?",
    )


async def _lists_end_and_deletes_repeat(run: _Run) -> None:
    box = await run.sandbox()
    name = f"check-{uuid.uuid4().hex[:12]}"
    if run.client.capabilities.snapshots:
        taken = await run.store.create(box.id, name=name)
        run.stack.push_async_callback(run._delete_snapshot, taken.id)
        run.expect(
            any(name in label for label in taken.names) or name in taken.id,
            f"the name asked for comes back in {', '.join(taken.names) or taken.id}",
            f"The name {name} does not come back, so a lost snapshot could not be found again.",
        )
        run.note(f"{await _count(run.store.list())} snapshots are listed, and the list ends")
        await run.store.delete(taken.id)
        await run.store.delete(taken.id)
        run.note("deleting a snapshot twice is fine")
    run.note(
        f"{await _count(run.client.list(ListFilter()))} sandboxes are listed, and the list ends"
    )
    await run.client.delete(box.id)
    try:
        await run.client.delete(box.id)
    except NotFound:
        run.note("deleting a sandbox twice says that it is gone")
    else:
        run.note("deleting a sandbox twice is fine")


async def _count(items: AsyncIterator[object]) -> int:
    number = 0
    async for _ in items:
        number += 1
        if number > _SNAPSHOT_BOUND:
            raise _Failed(f"The list has more than {_SNAPSHOT_BOUND} entries, or never ends.")
    return number


POINTS: tuple[tuple[str, str, Check], ...] = (
    ("snapshot_boot", "A sandbox starts from a snapshot's id", _starts_from_a_snapshot),
    ("snapshot_source", "The source of a snapshot stays usable", _source_stays_usable),
    ("pause", "Pausing keeps files and processes", _pause_keeps_memory),
    ("metadata", "Tags come back and find their sandbox", _metadata_finds_it),
    ("network", "Both network switches hold, in all four combinations", _switches_hold),
    ("users", "Commands run unprivileged, files arrive whole", _users_and_uploads),
    ("envd", "The data plane answers", _envd_answers),
    ("lists", "Lists end, deletes can be repeated, names come back", _lists_end_and_deletes_repeat),
)


async def run_checklist(
    client: SandboxClient, *, template: str, tags: Mapping[str, str]
) -> AsyncIterator[Point]:
    """The points in order, as each is done. `tags` are the owner's, on every sandbox that is made. Raises
    nothing of the backend's trouble."""
    for number, (name, title, check) in enumerate(POINTS, 1):
        yield await _tried(number, name, title, check, _Run(client, template, tags))


async def _tried(number: int, name: str, title: str, check: Check, run: _Run) -> Point:
    began = time.monotonic()
    outcome, reason, expected = Outcome.PASSED, "", False
    try:
        async with asyncio.timeout(POINT_LIMIT_S):
            await check(run)
    except _Skipped as skipped:
        outcome, reason, expected = Outcome.SKIPPED, str(skipped), skipped.expected
    except _Failed as failed:
        outcome, reason = Outcome.FAILED, str(failed)
    except SandboxError as error:
        outcome, reason = Outcome.FAILED, error.message
        log.warning("Point %s failed: %s: %s", name, error.kind, error.detail)
    except TimeoutError:
        outcome, reason = Outcome.FAILED, f"It took longer than {POINT_LIMIT_S:.0f} seconds."
    took_s = time.monotonic() - began
    try:
        async with asyncio.timeout(_CLEANUP_LIMIT_S):
            await run.stack.aclose()
    except TimeoutError:
        log.warning("Cleaning up after point %s took too long; the reaper has the rest", name)
    return Point(
        number=number,
        name=name,
        title=title,
        outcome=outcome,
        evidence=tuple(run.seen),
        reason=reason,
        expected=expected,
        took_s=round(took_s, 3),
    )
