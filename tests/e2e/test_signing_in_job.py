"""A person secures their account in a browser without JavaScript, and sees times in their own zone in one with."""

from __future__ import annotations

import re
import time
from base64 import b32decode
from collections.abc import Iterator

import pytest
from django_otp.oath import totp
from playwright.sync_api import Browser, Page, expect

from tests.e2e import steps
from tests.e2e.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

SPACE = "First space"
PASSWORD = "a-long-enough-pass-phrase"


@pytest.fixture
def plain(product: Product, browser: Browser) -> Iterator[Page]:
    """Without JavaScript."""
    context = browser.new_context(base_url=product.url, java_script_enabled=False)
    yield context.new_page()
    context.close()


def code(secret: str, *, steps_ago: int = 0) -> str:
    """Not right before the next one, so that it is still good when it arrives."""
    if time.time() % 30 > 25:
        time.sleep(30 - time.time() % 30)
    return f"{totp(b32decode(secret), drift=-steps_ago):06}"


def give_in_password(page: Page, username: str) -> None:
    page.goto("/sign-in/")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_two_step_sign_in_without_javascript(admin: Page, plain: Page) -> None:
    steps.add_person(admin, "careful", PASSWORD, role="Viewer", where=SPACE)
    give_in_password(plain, "careful")
    plain.goto("/me/two-step/")
    plain.get_by_role("button", name="Set it up").click()
    expect(plain.get_by_role("img", name="QR code")).to_be_visible()
    secret = plain.locator("code.secret").inner_text().replace(" ", "")
    plain.get_by_label("Code that the app shows now").fill(code(secret, steps_ago=1))
    plain.get_by_label("Your password").fill(PASSWORD)
    plain.get_by_role("button", name="Turn on two-step sign-in").click()
    recovery = plain.locator(".recovery-codes code").all_inner_texts()
    assert len(recovery) == 10
    plain.get_by_role("button", name="Sign out").click()

    give_in_password(plain, "careful")
    plain.get_by_label("Code from your app").fill(code(secret))
    plain.get_by_role("button", name="Sign in", exact=True).click()
    expect(plain.get_by_role("heading", name="Overview")).to_be_visible()
    plain.goto("/me/sign-ins/")
    expect(plain.get_by_text("this one")).to_be_visible()
    plain.get_by_role("button", name="Sign out", exact=True).click()

    give_in_password(plain, "careful")
    plain.get_by_text("Your phone is not at hand?").click()
    plain.get_by_label("Recovery code").fill(recovery[0])
    plain.get_by_role("button", name="Sign in with a recovery code").click()
    plain.goto("/me/two-step/")
    expect(plain.get_by_text("9 of 10 unused")).to_be_visible()


def test_times_are_in_the_readers_zone(admin: Page, product: Product, browser: Browser) -> None:
    steps.add_person(admin, "traveller", PASSWORD, role="Viewer", where=SPACE)
    context = browser.new_context(base_url=product.url, timezone_id="Asia/Shanghai")
    page = context.new_page()
    steps.sign_in(page, "traveller", PASSWORD)

    page.goto("/me/sign-ins/")
    told = page.locator("time").first
    expect(told).to_have_attribute("title", re.compile(r"\(Asia/Shanghai\) · .* UTC"))
    page.goto("/me/")
    expect(page.get_by_text("(Asia/Shanghai)")).to_be_visible()

    page.get_by_label("Time zone").select_option("America/New_York")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("there (America/New_York)")).to_be_visible()
    page.goto("/me/sign-ins/")
    expect(told).to_have_attribute("title", re.compile(r"\(America/New_York\) · .* UTC"))
    context.close()
