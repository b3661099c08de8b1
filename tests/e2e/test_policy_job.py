"""The space owner's job in a real browser: close the network, open a part of it, see it from inside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e import steps
from tests.e2e.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

SPACE = "First space"
PASSWORD = "a-long-enough-pass-phrase"
TRY = "curl -sS -m 20 -o /dev/null -w 'answer %{http_code}' https://pypi.org/simple/pip/ || echo refused"


@pytest.fixture
def owners(admin: Page, signed_in: Callable[..., Page]) -> Callable[[str], Page]:
    """Makes a space owner, who is nothing else, and signs them in."""

    def enter(name: str) -> Page:
        steps.add_person(admin, name, PASSWORD, role="Space owner", where=SPACE)
        return signed_in(name, PASSWORD)

    return enter


def save(page: Page) -> None:
    page.get_by_role("button", name="Save as a new revision").click()
    expect(page.get_by_text(re.compile(r"Revision \d+ holds"))).to_be_visible()


def save_preset(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    save(page)


def changes(page: Page, text: str) -> None:
    expect(page.locator("#preview").get_by_text(text)).to_be_visible()


def judge(page: Page, host: str, verdict: str) -> None:
    page.get_by_label("Host, address or URL").fill(host)
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator("#host-result")).to_contain_text(verdict, timeout=60_000)


def test_a_policy_is_edited_tested_applied_and_felt(owners: Callable[[str], Page]) -> None:
    page = owners("Ada")
    steps.open_space(page, SPACE, "Network")
    save_preset(page, "Closed")
    judge(page, "https://pypi.org/simple/", "denied")

    session = steps.start_session(page, SPACE)
    steps.run_command(page, TRY, expected="refused")

    steps.open_space(page, SPACE, "Network")
    page.get_by_label("Allow, entry 1").fill("nodots")
    expect(page.get_by_text("is no full domain name")).to_be_visible()
    page.get_by_label("Allow, entry 1").fill("pypi.org, *.pythonhosted.org")
    changes(page, "allow *.pythonhosted.org")
    expect(
        page.get_by_text(re.compile(r"Now there are \d+ running and \d+ paused"))
    ).to_be_visible()
    judge(page, "pypi.org", "allowed")
    page.get_by_label("Try it for real").check()
    judge(page, "https://pypi.org/simple/pip/", "HTTP 200")
    judge(page, "https://example.org/", "not reached")
    page.get_by_label("Why, for the history").fill("pip only")
    save(page)
    page.get_by_role("button", name=re.compile(r"Apply now to \d+ session")).click()
    page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
    expect(page.get_by_text(re.compile(r"[1-9]\d* sessions were updated in place"))).to_be_visible(
        timeout=30_000
    )

    page.goto(session)
    steps.run_command(page, TRY, expected="answer 200")
    steps.run_command(page, TRY.replace("pypi.org", "example.org"), expected="refused")
    steps.destroy_session(page)


def test_two_owners_edit_at_once_and_nothing_is_lost(
    owners: Callable[[str], Page], admin: Page, tmp_path: Path
) -> None:
    page = owners("Grace")
    steps.open_space(page, SPACE, "Network")
    steps.open_space(admin, SPACE, "Network")
    save_preset(admin, "Registries only")

    page.get_by_role("button", name="Allow: Add a row").click()
    last = page.get_by_label(re.compile(r"Allow, entry \d+")).last
    expect(last).to_be_focused()
    last.fill("mirror.example.com")
    expect(page.get_by_text(re.compile(r"saved revision \d+"))).to_be_visible()
    page.get_by_role("button", name="Put my changes on top of theirs").click()
    expect(page.locator("#preview")).to_be_focused()
    changes(page, "allow mirror.example.com")
    save(page)
    entries = page.get_by_label(re.compile(r"Allow, entry \d+"))
    texts = [entry.input_value() for entry in entries.all()]
    assert {"mirror.example.com", "pypi.org"} <= set(texts)

    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSON").click()
    exported = tmp_path / "policy.json"
    download.value.save_as(exported)
    assert "mirror.example.com" in json.loads(exported.read_text())["allow"]

    page.get_by_role("link", name="Undo").click()
    changes(page, "allow mirror.example.com")
    save(page)
    page.get_by_label("File", exact=True).set_input_files(exported)
    page.get_by_role("button", name="Compare with the present policy").click()
    expect(page.get_by_text("nothing is saved yet")).to_be_visible()
    save(page)
    save_preset(page, "Open")


def test_all_of_it_works_without_scripts(product: Product, browser: Browser) -> None:
    context = browser.new_context(base_url=product.url, java_script_enabled=False)
    page = context.new_page()
    steps.sign_in(page, *product.login)
    steps.open_space(page, SPACE, "Network")

    page.get_by_role("button", name="Closed", exact=True).click()
    page.get_by_label("Allow, entry 1").fill("nodots")
    page.get_by_label("Allow, entry 1").press("Enter")
    expect(page.get_by_text("is no full domain name")).to_be_visible()
    page.get_by_label("Allow, entry 1").fill("a.example.com b.example.com")
    page.get_by_role("button", name="Allow: Add a row").click()
    page.get_by_label("Allow, entry 3").fill("c.example.com")
    page.get_by_role("button", name="Remove b.example.com").click()
    changes(page, "allow c.example.com")
    page.get_by_label("Deny, entry 1").fill("203.0.113.0/24")
    page.get_by_role("button", name="Review the changes").last.click()
    changes(page, "deny 203.0.113.0/24")
    save(page)

    judge(page, "http://203.0.113.9/", "denied")
    expect(page.get_by_text("the deny entry 203.0.113.0/24")).to_be_visible()
    save_preset(page, "Open")
    context.close()
