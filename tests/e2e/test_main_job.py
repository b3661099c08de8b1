"""The main job in a real browser: upload a skill, watch its build, run it, download what it made."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e import steps
from tests.e2e.product import CHECKOUT

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.timeout(600)]

SALES = "region,month,revenue\nNorth,Jan,1200\nSouth,Jan,800\nNorth,Feb,1500\nSouth,Feb,950\n"


@dataclass(frozen=True)
class Job:
    skill: str
    package: str
    """One that its build has to install."""
    script: str
    arguments: str
    says: str
    makes: dict[str, bytes]
    """File by its first bytes."""


QUICK = Job(
    skill="chart-svg",
    package="vega",
    script="chart-svg/scripts/chart.mjs",
    arguments="/workspace/input/sales.csv --kind bar --x region --y revenue",
    says='"rows":4',
    makes={"sales.svg": b"<svg"},
)
FULL = Job(
    skill="table-report",
    package="pandas",
    script="table-report/scripts/report.py",
    arguments="/workspace/input/sales.csv --value revenue --by region",
    says='"total": 4450',
    makes={"sales-report.xlsx": b"PK", "sales-chart.png": b"\x89PNG"},
)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(FULL, id="full", marks=pytest.mark.slow),
    ],
)
def test_a_skill_becomes_a_release_and_a_session_runs_it(
    job: Job, admin: Page, tmp_path: Path
) -> None:
    page = admin
    folder = CHECKOUT / "skills" / "examples" / job.skill
    package = Path(shutil.make_archive(str(tmp_path / job.skill), "zip", folder))

    steps.upload_skill(page, package, job.skill)
    expect(page.get_by_role("heading", name="Safety report")).to_be_visible()
    expect(page.get_by_text(job.package).first).to_be_visible()

    steps.install(page, "First space")
    expect(page.locator("[data-log] div").first).to_be_visible(timeout=60_000)
    steps.build_ends(page)

    page.get_by_role("link", name=re.compile(r"See release \d+")).click()
    expect(page.get_by_role("heading", name=re.compile(r"Release \d+"))).to_be_visible()
    expect(page.get_by_text(re.compile(rf"{job.package} \d")).first).to_be_visible()

    steps.start_session(page, "First space")
    expect(page.get_by_text(re.compile(r"from release \d+"))).to_be_visible()
    data = tmp_path / "sales.csv"
    data.write_text(SALES)
    page.get_by_role("link", name="input/", exact=True).click()
    page.get_by_label("Files to upload").set_input_files(data)
    page.get_by_role("button", name="Upload to /workspace/input").click()
    expect(page.get_by_role("link", name="sales.csv").first).to_be_visible()

    steps.run_script(page, job.script, job.arguments, expected=job.says)

    page.get_by_role("link", name="See what it made").click()
    for name, magic in job.makes.items():
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download {name}").click()
        made = tmp_path / name
        download.value.save_as(made)
        assert made.read_bytes().startswith(magic)

    steps.destroy_session(page)
