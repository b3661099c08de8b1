"""Single keys: to the search, to the help, and how they are switched off."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(120)]


def test_keys_lead_to_the_search_and_to_the_help_until_they_are_switched_off(admin: Page) -> None:
    page = admin
    page.goto("/sessions/")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox").first
    expect(search).to_be_focused()
    page.keyboard.type("a/b?")
    expect(search).to_have_value("a/b?")
    page.keyboard.press("Escape")
    expect(page.locator("#main")).to_be_focused()

    page.keyboard.press("?")
    expect(page).to_have_url(re.compile("/help/space-owner/#sessions$"))

    page.goto("/help/")
    page.get_by_label("Use / and ? in this browser").uncheck()
    page.goto("/sessions/")
    page.keyboard.press("/")
    page.keyboard.press("?")
    expect(search).not_to_be_focused()
    expect(page).to_have_url(re.compile("/sessions/$"))
