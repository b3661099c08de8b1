"""A person at a session's terminal: types, leaves, comes back to the same shell, and is told what happens."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as Waited

from tests.e2e.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.timeout(300)]

ROWS = ".xterm-rows"


@pytest.fixture
def session(admin: Page) -> Iterator[Page]:
    """A session's page; the session is destroyed in the end."""
    admin.goto("/spaces/")
    admin.get_by_role("link", name="First space", exact=True).click()
    admin.get_by_role("button", name="Start a session").click()
    expect(admin.get_by_role("button", name="Open a terminal")).to_be_visible()
    address = admin.url
    yield admin
    admin.goto(address)
    admin.get_by_role("link", name="Destroy").click()
    admin.get_by_role("dialog").get_by_role("button", name="Destroy").click()
    expect(admin.get_by_text("The sandbox and its files are gone.")).to_be_visible()


def open_terminal(page: Page, says: str) -> None:
    button = page.get_by_role("button", name="Open a terminal")
    for _ in range(3):
        # Chromium drops what it loads while the host gets another network, as with each new sandbox.
        with contextlib.suppress(Waited):
            button.wait_for(timeout=5_000)
            break
        page.reload()
    button.click()
    expect(page.locator("#terminal-status")).to_have_text(says, timeout=30_000)


def types(page: Page, line: str, *, shows: str | re.Pattern[str]) -> None:
    page.keyboard.type(line + "\n")
    expect(page.locator(ROWS)).to_contain_text(shows, timeout=15_000)


def test_one_types_leaves_and_comes_back(session: Page) -> None:
    page = session
    open_terminal(page, "Connected to a new shell.")
    types(page, "mark=kept; echo $(id -un)-$((40 + 2)):$PWD", shows="user-42:/workspace")
    types(
        page, r"printf '\033[38;2;255;100;0mtrue\055colour\033[0m 你好\n'", shows="true-colour 你好"
    )
    coloured = page.locator(f"{ROWS} span", has_text=re.compile("^true-colour"))
    expect(coloured).to_have_css("color", "rgb(255, 100, 0)")

    page.keyboard.type("sleep 500\n")
    page.keyboard.press("Control+c")
    page.set_viewport_size({"width": 1280, "height": 900})
    types(page, "echo wide-$(( $(tput cols) > 70 ))", shows="wide-1")
    page.set_viewport_size({"width": 480, "height": 900})
    types(page, "echo narrow-$(( $(tput cols) < 70 ))", shows="narrow-1")
    page.set_viewport_size({"width": 1280, "height": 900})

    page.reload()
    open_terminal(page, "Connected to your shell, which ran on.")
    types(page, "echo still-$mark", shows="still-kept")

    page.keyboard.press("Control+Shift+Space")
    expect(page.get_by_role("button", name="End the shell")).to_be_focused()
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("exit 7\n")
    status = page.locator("#terminal-status")
    expect(status).to_have_text("The shell ended with exit code 7. Press Enter for a new one.")
    page.keyboard.press("Enter")
    expect(status).to_have_text("Connected to a new shell.")
    types(page, "echo gone-$mark-gone", shows="gone--gone")


@pytest.mark.slow
def test_a_paused_session_says_so_and_wakes_with_its_shell(session: Page) -> None:
    page = session
    open_terminal(page, "Connected to a new shell.")
    types(page, "mark=slept; echo set-$((1 + 1))", shows="set-2")
    with page.context.new_page() as other:
        other.goto(page.url)
        other.get_by_role("link", name="Pause").click()
        other.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(other.get_by_text("The session is paused;")).to_be_visible()
    status = page.locator("#terminal-status")
    expect(status).to_have_text(
        "The session is paused. Press Enter to wake it where it was.", timeout=15_000
    )
    page.keyboard.press("Enter")
    expect(status).to_have_text("Connected to your shell, which ran on.", timeout=15_000)
    types(page, "echo $mark-well", shows="slept-well")


@pytest.mark.slow
def test_it_lives_through_a_restart_of_the_web_process(
    session: Page, product: Product, browser: Browser
) -> None:
    # On a page of its own, for a browser complains of the lines that it can't lay meanwhile.
    context = browser.new_context(
        base_url=product.url, storage_state=session.context.storage_state()
    )
    page = context.new_page()
    page.goto(session.url)
    open_terminal(page, "Connected to a new shell.")
    types(page, "mark=survived; echo set-$((1 + 1))", shows="set-2")
    web = subprocess.run(
        ["pgrep", "-P", str(product.process.pid), "-f", "console.embedded.web"],
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(int(web.stdout.split()[0]), signal.SIGKILL)
    status = page.locator("#terminal-status")
    expect(status).to_have_text("The connection was lost; trying again…", timeout=10_000)
    expect(status).to_have_text("Connected to your shell, which ran on.", timeout=60_000)
    types(page, "echo it-$mark", shows="it-survived")
    context.close()
