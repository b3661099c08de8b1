"""The space owner's job in a real browser: close the network, open a part of it, see it from inside."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

TRY = "curl -sS -m 20 -o /dev/null -w 'answer %{http_code}' https://pypi.org/simple/pip/ || echo refused"


def open_network(page: Page) -> None:
    page.goto("/spaces/")
    page.get_by_role("link", name="First space").click()
    page.get_by_role("link", name="Network").click()


def save_preset(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("button", name="Save as a new revision").click()
    expect(page.get_by_text(re.compile(r"Revision \d+ holds"))).to_be_visible()


def run(page: Page, command: str) -> None:
    page.get_by_label("A command line").fill(command)
    page.get_by_role("button", name="Run the command").click()


def test_a_policy_is_edited_tested_applied_and_felt(admin: Page) -> None:
    page = admin
    open_network(page)
    save_preset(page, "Closed")

    page.get_by_label("Host, address or URL").fill("https://pypi.org/simple/")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator("#host-result")).to_contain_text("denied")

    page.get_by_role("link", name="Skills", exact=True).click()
    page.get_by_role("button", name="Start a session").click()
    run(page, TRY)
    expect(page.locator("#result pre")).to_contain_text("refused", timeout=60_000)
    session = page.url

    open_network(page)
    save_preset(page, "Registries only")
    page.get_by_label("Host, address or URL").fill("pypi.org")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator("#host-result")).to_contain_text("allowed")
    page.get_by_role("button", name=re.compile("Apply now to 1 session")).click()
    page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
    expect(page.get_by_text("1 sessions were updated in place")).to_be_visible(timeout=30_000)

    page.goto(session)
    run(page, TRY)
    expect(page.locator("#result pre")).to_contain_text("answer 200", timeout=60_000)
    run(page, TRY.replace("pypi.org", "example.org"))
    expect(page.locator("#result pre")).to_contain_text("refused", timeout=60_000)

    page.get_by_role("button", name="Destroy").click()
    page.get_by_role("dialog").get_by_role("button", name="Destroy").click()
    expect(page.get_by_text("The sandbox and its files are gone.")).to_be_visible()
