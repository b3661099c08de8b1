"""The admin's job in a real browser: a backend that is checked and verified, a skill from its upload
to a release, the next release, what differs, and back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e import steps

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(600)]

SPACE = "Robots"


def test_a_backend_is_added_checked_verified_and_removed(admin: Page) -> None:
    page = admin
    page.goto("/backends/new/")
    page.get_by_role("link", name="This machine (runc)").click()
    page.get_by_label("Name").fill("Second door")
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("heading", name="Second door", level=1)).to_be_visible()

    page.get_by_role("button", name="Check it now").click()
    expect(page.get_by_text("The backend answers.")).to_be_visible()
    expect(
        page.get_by_role("row", name=re.compile("enforces lists of domains yes"))
    ).to_be_visible()

    page.get_by_role("button", name="Try the eight points").click()
    expect(page.get_by_role("heading", name="Verification")).to_be_visible()
    # No page load in between: the table asks for itself until the run has ended.
    expect(page.locator("#points tbody tr")).to_have_count(8, timeout=240_000)
    expect(page.locator("#points .badge").filter(has_text="failed")).to_have_count(0)
    expect(page.locator("#points .badge").filter(has_text="passed").nth(5)).to_be_visible()

    page.get_by_role("link", name="Second door").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="Second door")).to_have_count(0)


def test_releases_follow_each_other_differ_and_are_rolled_back(admin: Page, tmp_path: Path) -> None:
    page = admin
    steps.new_space(page, SPACE, "robots")

    package = steps.make_skill(tmp_path / "echo.zip", name="echo", says="one")
    steps.upload_skill(page, package, "echo")
    page.get_by_role("link", name="Edit the plan").click()
    page.get_by_label("Add check").fill("python3 scripts/say.py")
    page.get_by_role("button", name="Save the plan").click()
    expect(page.get_by_text("Plan 2 is saved.")).to_be_visible()
    steps.install(page, SPACE)
    steps.build_ends(page)
    page.get_by_role("link", name="See release 1").click()
    expect(page.get_by_text("serves", exact=True)).to_be_visible()

    package = steps.make_skill(tmp_path / "echo2.zip", name="echo", says="two")
    steps.upload_skill(page, package, "echo")
    steps.open_space(page, SPACE, "Skills")
    page.get_by_role("button", name="Upgrade to #2").click()
    steps.build_ends(page)

    session = steps.start_session(page, SPACE)
    says = "cat /opt/weknora/tenant/skills/echo/scripts/say.py"
    steps.run_command(page, says, expected='print("two")')

    steps.open_space(page, SPACE, "Releases")
    page.get_by_role("row", name=re.compile("^2|serves")).get_by_role("link", name="Diff").click()
    expect(page.get_by_role("row", name=re.compile("changed .*echo")).first).to_contain_text("#2")
    expect(page.get_by_text("scripts/say.py")).to_be_visible()

    steps.open_space(page, SPACE, "Releases")
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("button", name="Roll back to it").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("Two was too loud")
    dialog.get_by_role("button", name="Roll back").click()
    steps.open_space(page, SPACE, "Releases")
    expect(page.get_by_text("Two was too loud")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"serves")).first).to_contain_text("1")

    page.goto(session)
    steps.run_command(page, says, expected='print("one")')
    steps.destroy_session(page)
