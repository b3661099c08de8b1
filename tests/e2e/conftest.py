"""A real browser and the real product behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e import product as products
from tests.sandboxes import daemon

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="package")
def product() -> Iterator[products.Product]:
    if reason := daemon.why_not():
        pytest.skip(reason)
    with products.start() as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Ends with this folder's tests: while it lives its event loop counts as the thread's running
    one, and no asynchronous test could start another."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs a browser; install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.fixture
def admin(product: products.Product, browser: Browser) -> Iterator[Page]:
    """A page of a signed-in admin; at the end nothing may have been logged to its console."""
    context = browser.new_context(base_url=product.url, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    username, password = product.login
    page.goto("/sign-in/")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    yield page
    context.close()
    assert complaints == []
