"""A command from a session's page, followed while it runs, on a real sandboxd."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.test import AsyncClient
from django.urls import reverse
from redis import Redis as BlockingRedis

from console.audit.models import AuditEntry
from console.fleet import sessions
from console.fleet.runtime import close_shared_runtime, shared_runtime
from console.tenants.models import Membership, Role, Space, User
from sandboxes.types import ExecRequest
from tests.console.fleet.loop import ALICE, in_loop, resolve, row_of

pytestmark = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def its_redis(redis: BlockingRedis) -> None:
    """Bindings of this test only."""


@contextlib.asynccontextmanager
async def a_browser(space: Space) -> AsyncIterator[tuple[AsyncClient, str]]:
    user = await User.objects.acreate(username="alice")
    await Membership.objects.acreate(
        user=user, tenant=space.tenant, space=space, role=Role.OPERATOR
    )
    browser = AsyncClient()
    await browser.aforce_login(user)
    try:
        await resolve(shared_runtime(), space)
        yield browser, reverse("web:run-stream", args=[(await row_of(space)).pk])
    finally:
        await sessions.destroy(
            runtime=shared_runtime(), space=space, session_id="talk", actor=ALICE
        )
        await close_shared_runtime()


async def events(answer: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async for chunk in answer:
        for block in chunk.decode().split("\n\n"):
            if block.startswith("event: "):
                name, _, data = block.removeprefix("event: ").partition("\ndata: ")
                yield name, json.loads(data)


@in_loop
async def test_output_comes_as_it_is_made_and_the_end_is_told(real_space: Space) -> None:
    async with a_browser(real_space) as (browser, address):
        command = "echo 你好; while [ ! -e go ]; do sleep 0.05; done; echo so >&2; exit 5"
        answer = await browser.post(address, {"command": command})
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        seen = []
        async for name, data in events(answer):
            seen.append((name, data.get("text") or data.get("command")))
            if (name, data.get("text")) == ("stdout", "你好\n"):
                live = await resolve(shared_runtime(), real_space)
                touch = ExecRequest(argv=("touch", "/workspace/go"))
                assert (await live.client.run(live.sandbox, touch)).ok
        assert seen[:3] == [("start", command), ("stdout", "你好\n"), ("stderr", "so\n")]
        assert [name for name, _ in seen] == ["start", "stdout", "stderr", "exit"]
        assert str(seen[3][1]).startswith("exit code 5 after ")
        entry = await AuditEntry.objects.filter(action="session.exec").alatest("pk")
        assert entry.details["exit_code"] == 5


@in_loop
async def test_who_leaves_ends_it(real_space: Space) -> None:
    async with a_browser(real_space) as (browser, address):
        answer = await browser.post(address, {"command": "echo on; exec sleep 4711"})
        runs = asyncio.Event()

        async def read() -> None:
            async for name, _ in events(answer):
                if name == "stdout":
                    runs.set()

        # As the server does with a request whose client has left.
        reading = asyncio.ensure_future(read())
        await runs.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        live = await resolve(shared_runtime(), real_space)
        look = ExecRequest(argv=("pgrep", "-x", "sleep"))
        assert (await live.client.run(live.sandbox, look)).exit_code == 1
        entry = await AuditEntry.objects.filter(action="session.exec").alatest("pk")
        assert entry.details["exit_code"] is None


@in_loop
async def test_what_can_t_be_run_is_said(real_space: Space) -> None:
    async with a_browser(real_space) as (browser, address):
        for form, sentence in (
            ({"command": " "}, "Choose a script, or type a command."),
            ({"script": "demo/x.py", "args": "'"}, "The arguments can't be split"),
            ({"script": "demo/x.py", "args": ""}, "no script “x.py”"),
        ):
            answer = await browser.post(address, form)
            told = [event async for event in events(answer)]
            assert [name for name, _ in told] == ["problem"]
            assert sentence in told[0][1]["text"]
