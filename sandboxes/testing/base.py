"""What every class of the contract suite stands on: the gate by capability, and a few helpers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pytest

from sandboxes.client import FileStore, SandboxClient
from sandboxes.errors import NotFound
from sandboxes.network import CLOSED, NetworkPolicy
from sandboxes.types import (
    DEFAULT_USER,
    CreateRequest,
    ExecRequest,
    ExecResult,
    ListFilter,
    Sandbox,
    TimeoutPolicy,
)

__all__ = [
    "Contract",
    "Outside",
    "SandboxFactory",
    "Target",
    "files_of",
    "needs",
    "shell",
    "text_of",
    "until",
]

RUN_TAG = "skillyard-contract-suite"

Test = TypeVar("Test", bound=Callable[..., Any])


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Skip one test, with the backend's own note, where a capability is missing."""

    def mark(test: Test) -> Test:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class Contract:
    """Base of the suite's classes. `stands_on` names the capabilities that a whole class needs."""

    stands_on: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture(autouse=True)
    def _only_what_is_promised(self, request: pytest.FixtureRequest, client: SandboxClient) -> None:
        for name in (*self.stands_on, *getattr(request.function, "needs", ())):
            if not getattr(client.capabilities, name):
                note = client.capabilities.notes.get(name, "no reason given")
                pytest.skip(f"this backend has no {name}: {note}")


class SandboxFactory:
    """Makes sandboxes for one test and deletes them after it. Closed networks unless asked."""

    def __init__(self, client: SandboxClient, template: str) -> None:
        self._client = client
        self.template = template
        self._made: list[str] = []

    def request(
        self,
        *,
        template: str | None = None,
        network: NetworkPolicy = CLOSED,
        timeout: TimeoutPolicy | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CreateRequest:
        return CreateRequest(
            template=template or self.template,
            network=network,
            timeout=timeout or TimeoutPolicy(timeout_s=300),
            metadata={RUN_TAG: "yes", **(metadata or {})},
            env=env or {},
        )

    async def __call__(self, **changes: Any) -> Sandbox:
        sandbox = await self._client.create(self.request(**changes))
        self._made.append(sandbox.id)
        return sandbox

    async def aclose(self) -> None:
        for sandbox_id in self._made:
            try:
                await self._client.delete(sandbox_id)
            except NotFound:
                continue


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A web server outside, that answers any GET with `body`. `name` resolves to it, if set."""

    address: str
    body: str
    port: int = 80
    name: str | None = None

    def url(self, *, by_name: bool = False) -> str:
        return f"http://{self.name if by_name else self.address}:{self.port}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Two servers on the far side of the sandboxes' network, at public-looking addresses."""

    first: Target
    second: Target


async def shell(
    client: SandboxClient,
    sandbox: Sandbox,
    script: str,
    *,
    user: str = DEFAULT_USER,
    timeout_s: float | None = 60.0,
) -> ExecResult:
    return await client.run(
        sandbox,
        ExecRequest(argv=ExecRequest.shell_argv(script), user=user, timeout_s=timeout_s),
    )


async def text_of(client: SandboxClient, sandbox: Sandbox, script: str, **options: Any) -> str:
    """What a script that must succeed prints."""
    result = await shell(client, sandbox, script, **options)
    assert result.ok, (result.exit_code, result.killed, result.stdout, result.stderr)
    return result.stdout.decode()


def files_of(client: SandboxClient) -> FileStore:
    assert client.files is not None
    return client.files


async def until(
    condition: Callable[[], Awaitable[bool]], *, within_s: float, every_s: float = 0.1
) -> None:
    """Wait for what another program is about to do."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - the other program has no event for us
            await asyncio.sleep(every_s)


async def ids_of(client: SandboxClient, filter: ListFilter) -> list[str]:
    return [info.id async for info in client.list(filter)]


def unique() -> str:
    return uuid.uuid4().hex


async def chunks(total: int, *, size: int = 256 * 1024, seed: bytes = b"") -> AsyncIterator[bytes]:
    """`total` bytes that differ from block to block, without holding them all."""
    sent = 0
    while sent < total:
        block = (seed + sent.to_bytes(8, "big")) * (size // (len(seed) + 8) + 1)
        piece = block[: min(size, total - sent)]
        sent += len(piece)
        yield piece
