"""The overview asks for news every half minute, not behind another tab, and shows the sign-in to who is signed out."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Request

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

HALF_MINUTE_MS = 31_000


def test_news_come_while_somebody_looks(admin: Page) -> None:
    page = admin
    page.clock.install()
    page.goto("/")
    asked: list[str] = []

    def note(request: Request) -> None:
        if request.headers.get("hx-request"):
            asked.append(request.url)

    page.on("request", note)

    with page.expect_response(lambda response: "period=24h" in response.url):
        page.clock.run_for(HALF_MINUTE_MS)
    assert len(asked) == 1

    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.clock.run_for(10 * HALF_MINUTE_MS)
    assert len(asked) == 1

    with page.expect_response(lambda response: "period=24h" in response.url):
        page.evaluate("delete document.hidden")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert len(asked) == 2

    page.context.clear_cookies()
    page.clock.run_for(HALF_MINUTE_MS)
    page.wait_for_url("**/sign-in/**")
