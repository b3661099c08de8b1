"""The fields RateLimit-Policy and RateLimit: what holds, what is left, and that a 429 says when to come again."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync

from console.api import limits
from console.api.errors import ApiError
from console.audit.services import Actor
from console.fleet.runtime import close_shared_runtime
from console.tenants.access import Principal

POLICY = re.compile(r'"([a-z]+)";q=(\d+)(?:;qu="concurrent-requests"|;w=([1-9]\d*))')
STATE = re.compile(r'"([a-z]+)";r=(\d+)(?:;t=(\d+))?')


def read(headers: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(policies, states) by name, with their numbers."""
    found = []
    for field, shape in (("RateLimit-Policy", POLICY), ("RateLimit", STATE)):
        items = headers[field].split(", ")
        parsed = [shape.fullmatch(item) for item in items]
        assert all(parsed), headers[field]
        found.append({match[1]: match.groups()[1:] for match in parsed if match})
    return found[0], found[1]


@pytest.fixture
def rates(redis_url: str, settings: Any) -> Any:
    settings.REDIS_NAMESPACE = "rates"
    settings.API_RATES = {**settings.API_RATES, "build": [0.5, 3], "exec": [0.5, 3]}
    settings.API_COMMANDS_PER_SPACE = 2
    return settings


def caller(name: str) -> Principal:
    return Principal(actor=Actor(name=name), grants=())


def in_loop(work: Any) -> Any:
    async def run() -> Any:
        try:
            return await work()
        finally:
            await close_shared_runtime()

    return async_to_sync(run)()


def test_a_bucket_empties_and_says_when_there_is_more(rates: Any) -> None:
    async def work() -> tuple[list[dict[str, str]], ApiError]:
        told = [await limits.take("build", caller("a")) for _ in range(3)]
        with pytest.raises(ApiError) as refused:
            await limits.take("build", caller("a"))
        assert await limits.take("build", caller("b")), "another caller has a bucket of its own"
        return told, refused.value

    told, refused = in_loop(work)
    for left, headers in zip((2, 1, 0), told, strict=True):
        policy, state = read(headers)
        assert policy == {"build": ("3", "6")}
        assert state["build"][0] == str(left)
        assert 1 <= int(state["build"][1]) <= 2
    _, state = read(refused.headers)
    assert (refused.status, state["build"][0]) == (429, "0")
    assert state["build"][1] == refused.headers["Retry-After"]


def test_commands_tell_of_the_rate_and_of_the_places(rates: Any) -> None:
    async def work() -> list[Any]:
        found: list[Any] = []
        wish = {"tenant_id": "t", "space_id": "s", "timeout_s": 5}
        for name in ("a", "b"):
            found.append((await limits.admit_command(caller(name), **wish)).fields)
        with pytest.raises(ApiError) as full:
            await limits.admit_command(caller("c"), **wish)
        found.append(full.value.headers)
        return found

    first, second, full = in_loop(work)
    policy, state = read(first)
    assert policy == {"exec": ("3", "6"), "running": ("2", None)}
    assert (state["exec"][0], state["running"]) == ("2", ("1", None))
    assert read(second)[1]["running"] == ("0", None)
    assert read(full)[1]["running"] == ("0", None)
    assert full["Retry-After"] == "1"


@pytest.mark.sandbox
def test_answers_carry_them(api: httpx.Client, session: str) -> None:
    done = api.post(f"{session}/exec", json={"argv": ["true"]})
    policy, state = read(done.headers)
    assert policy == {"exec": ("500", "10"), "running": ("1000", None)}
    assert int(state["exec"][0]) < 500
    refused = api.post(
        f"{session}/exec", json={"argv": ["true"], "user": "root", "cwd": "/nowhere"}
    )
    assert refused.is_error
    assert "RateLimit" in refused.headers
    assert "RateLimit" not in api.get(session).headers
