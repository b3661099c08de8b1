"""A list in a real browser: found while typing, sorted, kept in the address, and many rows acted on by a worker."""

from __future__ import annotations

import csv
import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ["list-b", "list-a", "list-c"]


def make_key(page: Page, name: str) -> None:
    page.goto("/keys/")
    page.get_by_text("New key", exact=True).click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Make the key").click()
    expect(page.get_by_text("Copy the key now")).to_be_visible()


def shown(page: Page) -> list[str]:
    return [text.split("\n")[0] for text in page.locator("tbody th").all_inner_texts()]


def test_keys_are_found_sorted_exported_and_revoked_at_once(admin: Page) -> None:
    page = admin
    for name in NAMES:
        make_key(page, name)

    page.goto("/keys/")
    search = page.get_by_role("searchbox")
    search.press_sequentially("list-")
    expect(page).to_have_url(re.compile(r"/keys/\?q=list-$"))
    expect(page.locator("#count")).to_have_text("3 results")
    expect(search).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="3 results")).to_have_count(1)

    page.locator("#by-name").click()
    expect(page).to_have_url(re.compile(r"sort=name"))
    expect(page.locator("#by-name")).to_be_focused()
    assert shown(page) == sorted(NAMES)
    page.get_by_label("State").select_option("revoked")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.go_back()
    expect(page.locator("#count")).to_have_text("3 results")
    expect(page.get_by_role("searchbox")).to_have_value("list-")
    assert shown(page) == sorted(NAMES)

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    with download.value.path().open(encoding="utf-8-sig", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == sorted(NAMES)

    rows = page.locator("tbody input[type=checkbox]")
    rows.nth(0).check()
    rows.nth(2).click(modifiers=["Shift"])
    expect(page.locator("#bulk .chosen")).to_have_text("chosen: 3")
    rows.nth(1).uncheck()
    page.get_by_role("button", name="Revoke…").click()
    expect(page.get_by_role("heading", name="Revoke 2 keys?")).to_be_visible()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.locator(".outcomes")).to_contain_text("done 2", timeout=60_000)

    page.goto("/keys/?q=list-&state=valid")
    assert shown(page) == ["list-b"]
