"""A real browser and the real product behind it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.e2e import product as products
from tests.e2e import steps
from tests.sandboxes import daemon

FAILED = pytest.StashKey[bool]()
CUT_SHORT = ("htmx:afterRequest", "htmx:sendAbort", "htmx:sendError")
"""A click on a link ends the requests of the page that is left."""
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def product() -> Iterator[products.Product]:
    if reason := daemon.why_not():
        pytest.skip(reason)
    with products.start() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: while it lives, its event loop counts as the thread's running one, and no
    asynchronous test could start another."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs a browser; install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def signed_in(
    request: pytest.FixtureRequest, product: products.Product, browser: Browser
) -> Iterator[Callable[..., Page]]:
    """Signs people in, each in a browser of their own. At the end nothing may have been logged to its
    console; after a failure it is told what the pages showed."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(CUT_SHORT):
            complaints.append(message.text)

    def enter(username: str, password: str) -> Page:
        context = browser.new_context(base_url=product.url, viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        steps.sign_in(page, username, password)
        return page

    yield enter
    if failed := request.node.stash.get(FAILED, False):
        for context in contexts:
            print(f"\n{context.pages[0].url}\n{context.pages[0].locator('body').inner_text()}")
    for context in contexts:
        context.close()
    assert failed or complaints == []


@pytest.fixture
def admin(product: products.Product, signed_in: Callable[..., Page]) -> Page:
    return signed_in(*product.login)
