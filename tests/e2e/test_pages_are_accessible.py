"""WCAG 2.2 AA by axe on every page, in both themes; no page scrolls sideways on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.e2e.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PHONE = {"width": 360, "height": 740}


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, product: Product, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        base_url=product.url,
        color_scheme=request.param,
        viewport={"width": 1280, "height": 900},
    )
    page = context.new_page()
    page.goto("/sign-in/")
    assert violations(page) == []
    username, password = product.login
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    yield page
    context.close()


def violations(page: Page) -> list[tuple[str, str]]:
    found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
    return [(rule["id"], str(node["target"])) for rule in found for node in rule["nodes"]]


def addresses(page: Page) -> list[str]:
    """Of the navigation, of the first row of each list, and of the tabs and forms behind them."""
    found = ["/", "/me/", "/me/password/"]
    found += page.eval_on_selector_all(".sidebar nav a", "links => links.map(l => l.pathname)")
    for address in list(found):
        page.goto(address)
        links = page.eval_on_selector_all(
            "tbody tr:first-child a, .tabs a, .page-head .actions a:not([download])",
            "links => links.map(l => l.pathname)",
        )
        found += [link for link in links if link not in found]
    return list(dict.fromkeys(found))


def test_axe_finds_nothing_and_phones_need_no_sideways_scroll(page: Page) -> None:
    problems: dict[str, object] = {}
    pages = addresses(page)
    space = next(address for address in pages if address.startswith("/spaces/spc_"))
    pages += [f"{space}{tab}/" for tab in ("releases", "builds", "sessions", "network", "settings")]
    for address in dict.fromkeys(pages):
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(address)
        if found := violations(page):
            problems[address] = found
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        too_wide = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if too_wide > 0:
            problems[f"{address} on a phone"] = f"{too_wide} px too wide"

    assert len(pages) > 15
    assert problems == {}
