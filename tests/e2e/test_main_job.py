"""The main job in a real browser: upload a skill, watch its build, run it, download what it made."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.product import CHECKOUT

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(600)]

SALES = "region,month,revenue\nNorth,Jan,1200\nSouth,Jan,800\nNorth,Feb,1500\nSouth,Feb,950\n"
BUILD_TIMEOUT_MS = 400_000


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = CHECKOUT / "skills" / "examples" / "table-report"
    return Path(shutil.make_archive(str(tmp_path / "table-report"), "zip", folder))


def test_a_skill_becomes_a_release_and_a_session_runs_it(
    admin: Page, package: Path, tmp_path: Path
) -> None:
    page = admin

    page.get_by_role("link", name="Upload a skill").first.click()
    page.get_by_label("Archive").set_input_files(package)
    page.get_by_role("button", name="Upload and inspect").click()
    expect(page.get_by_role("heading", name="table-report")).to_be_visible()
    expect(page.get_by_role("heading", name="Safety report")).to_be_visible()
    expect(page.get_by_text("pandas").first).to_be_visible()

    page.get_by_role("button", name="Install in a space").click()
    page.get_by_role("dialog").get_by_role("button", name="First space").click()
    expect(page.get_by_role("heading", name="Build of First space")).to_be_visible()
    expect(page.locator("[data-log] div").first).to_be_visible(timeout=60_000)
    expect(page.locator("#status .badge").first).to_have_text("Succeeded", timeout=BUILD_TIMEOUT_MS)

    page.get_by_role("link", name=re.compile("See release 1")).click()
    expect(page.get_by_role("heading", name="Release 1")).to_be_visible()
    expect(page.get_by_text(re.compile(r"pandas \d"))).to_be_visible()

    page.get_by_role("link", name="First space").click()
    page.get_by_role("button", name="Start a session").click()
    expect(page.get_by_text("from release 1")).to_be_visible()

    data = tmp_path / "sales.csv"
    data.write_text(SALES)
    page.get_by_label("Files to upload").set_input_files(data)
    page.get_by_role("button", name="Upload to /workspace/input").click()
    expect(page.get_by_role("link", name="sales.csv")).to_be_visible()

    page.get_by_label("A skill's script").select_option("table-report/scripts/report.py")
    page.get_by_label("Arguments").fill("/workspace/input/sales.csv --value revenue --by region")
    page.get_by_role("button", name="Run the script").click()
    expect(page.locator("#result")).to_contain_text("exit code 0", timeout=120_000)
    expect(page.locator("#result pre")).to_contain_text('"total": 4450')

    page.get_by_role("link", name="See what it made").click()
    for name, magic in (("sales-report.xlsx", b"PK"), ("sales-chart.png", b"\x89PNG")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        made = tmp_path / name
        download.value.save_as(made)
        assert made.read_bytes().startswith(magic)

    page.get_by_role("button", name="Destroy").click()
    page.get_by_role("dialog").get_by_role("button", name="Destroy").click()
    expect(page.get_by_text("The sandbox and its files are gone.")).to_be_visible()
