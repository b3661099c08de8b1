"""The operator's job in a real browser: a sandbox that nobody needs, a build whose worker died, a session
whose sandbox was destroyed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.network import CLOSED
from sandboxes.sessions import TAG_SESSION
from sandboxes.types import CreateRequest, ListFilter, TimeoutPolicy
from tests.e2e import steps
from tests.e2e.product import ORPHAN_GRACE_S, Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(600)]

T = TypeVar("T")
SPACE = "First space"
NOBODY = "nobody"
PASSWORD = "a-long-enough-pass-phrase"
TAKEN_UP_MS = 120_000
"""A worker's hold lapses after a minute."""


@pytest.fixture
def operator(request: pytest.FixtureRequest, admin: Page, signed_in: Callable[..., Page]) -> Page:
    """Somebody who is an operator of the whole tenant and nothing else."""
    name = request.node.name.split("_")[1]
    steps.add_person(admin, name, PASSWORD, role="Operator", where="The whole tenant")
    return signed_in(name, PASSWORD)


def in_sandboxd(product: Product, work: Callable[[SandboxClient], Coroutine[Any, Any, T]]) -> T:
    """What `work` does with a client of the product's sandboxd."""

    async def run() -> T:
        client = await registry.open_client("local", {"socket": str(product.socket)})
        async with client:
            return await work(client)

    # The browser's own loop counts as this thread's running one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


def make_orphan(product: Product) -> str:
    """A sandbox with the tags of a session, but one that does not exist."""

    async def make(client: SandboxClient) -> str:
        known = [info async for info in client.list(ListFilter())]
        tags = next(info.metadata for info in known if TAG_SESSION in info.metadata)
        made = await client.create(
            CreateRequest(
                template="base",
                network=CLOSED,
                timeout=TimeoutPolicy(timeout_s=600),
                metadata={**tags, TAG_SESSION: NOBODY},
            )
        )
        return made.id

    return in_sandboxd(product, make)


def exists(product: Product, sandbox_id: str) -> bool:
    async def look(client: SandboxClient) -> bool:
        return sandbox_id in [info.id async for info in client.list(ListFilter())]

    return in_sandboxd(product, look)


def dry_run(page: Page) -> None:
    page.goto("/reconcile/")
    page.get_by_role("button", name="Run a dry run").first.click()


def test_orphans_are_shown_by_a_dry_run_and_deleted_by_a_run(
    operator: Page, product: Product
) -> None:
    page = operator
    # Whatever is older than the first look of all has its grace from then on.
    dry_run(page)
    expect(page.get_by_text("sandboxes seen")).to_be_visible(timeout=60_000)
    session = steps.start_session(page, SPACE)
    orphan = make_orphan(product)
    time.sleep(ORPHAN_GRACE_S + 1)

    dry_run(page)
    row = page.get_by_role("row", name=orphan)
    expect(row).to_contain_text("would be deleted", timeout=60_000)
    assert exists(product, orphan)

    page.get_by_role("button", name="Run it now").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no session and no build needs")
    dialog.get_by_role("button", name="Run it now").click()
    expect(row.get_by_role("cell", name="deleted", exact=True)).to_be_visible(timeout=60_000)
    assert not exists(product, orphan)

    page.goto(session)
    steps.run_command(page, "echo still here", expected="still here")
    steps.destroy_session(page)


def test_builds_whose_worker_died_are_taken_up(
    operator: Page, admin: Page, product: Product, tmp_path: Path
) -> None:
    steps.new_space(admin, "Workshop", "workshop")
    package = steps.make_skill(tmp_path / "slow.zip", name="slow", says="done")
    steps.upload_skill(admin, package, "slow")
    admin.get_by_role("link", name="Edit the plan").click()
    admin.get_by_label("Add command").fill("echo begun && sleep 20")
    admin.get_by_role("button", name="Save the plan").click()
    steps.install(admin, "Workshop")

    page = operator
    page.goto("/builds/")
    page.get_by_role("row", name="Workshop").get_by_role("rowheader").get_by_role("link").click()
    expect(page.get_by_role("log")).to_contain_text("begun", timeout=60_000)
    os.kill(product.process_of("celery", "--hostname=builder@skillyard"), signal.SIGKILL)

    expect(page.get_by_text("This build is stuck")).to_be_visible(timeout=TAKEN_UP_MS)
    page.get_by_role("button", name="Take it up now").click(timeout=TAKEN_UP_MS)
    steps.build_ends(page)


def test_sessions_go_on_after_their_sandbox_was_destroyed(operator: Page) -> None:
    page = operator
    session = steps.start_session(page, SPACE)
    steps.run_command(page, "touch /workspace/mine && ls /workspace", expected="mine")
    steps.destroy_session(page)

    page.goto(session)
    expect(page.get_by_text("Destroyed", exact=True).first).to_be_visible()
    expect(page.get_by_text("Without a sandbox there are no files.")).to_be_visible()
    steps.run_command(page, "ls /workspace && echo anew", expected="anew")
    expect(page.get_by_role("log", name="Output")).not_to_contain_text("mine")

    page.goto(session)
    expect(page.get_by_text("Running", exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("^destroyed")).first).to_be_visible()
    steps.destroy_session(page)
