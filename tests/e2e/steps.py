"""What people do on the pages, as the browser tests have them do it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from playwright.sync_api import Page, expect

__all__ = [
    "add_person",
    "build_ends",
    "destroy_session",
    "install",
    "make_skill",
    "new_space",
    "open_space",
    "run_command",
    "run_script",
    "sign_in",
    "start_session",
    "upload_skill",
]

BUILD_MS = 400_000
COMMAND_MS = 60_000


def sign_in(page: Page, username: str, password: str) -> None:
    page.goto("/sign-in/")
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview", level=1).wait_for()


def add_person(page: Page, username: str, password: str, *, role: str, where: str) -> None:
    page.goto("/members/")
    page.get_by_text("Add a person", exact=True).click()
    form = page.locator("form").filter(has=page.get_by_role("button", name="Add", exact=True))
    form.get_by_label("User name").fill(username)
    form.get_by_label("Password").fill(password)
    form.get_by_label("Role").select_option(label=role)
    form.get_by_label("Space").select_option(label=where)
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"“{username}” is in.")).to_be_visible()


def new_space(page: Page, name: str, slug: str) -> None:
    page.goto("/spaces/new/")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Short name").fill(slug)
    page.get_by_label("Backend").select_option(label="This machine")
    page.get_by_role("button", name="Make the space").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def open_space(page: Page, name: str, tab: str) -> None:
    page.goto("/spaces/")
    page.get_by_role("link", name=name, exact=True).click()
    link = page.get_by_label("Of this space").get_by_role("link", name=tab, exact=True)
    link.click()
    expect(link).to_have_attribute("aria-current", "page")


def make_skill(path: Path, *, name: str, says: str) -> Path:
    """A skill of one script without dependencies, so that its build takes seconds."""
    text = f"---\nname: {name}\ndescription: Says “{says}”, whatever is asked.\n---\n\n# {name}\n"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(f"{name}/SKILL.md", text + "\nRun `python3 scripts/say.py`.\n")
        package.writestr(f"{name}/scripts/say.py", f'print("{says}")\n')
    return path


def upload_skill(page: Page, package: Path, name: str) -> None:
    page.goto("/catalog/upload/")
    page.get_by_label("Archive").set_input_files(package)
    page.get_by_role("button", name="Upload and inspect").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def install(page: Page, space: str) -> None:
    """From a skill's page; ends on the page of the build."""
    page.get_by_role("button", name="Install in a space").click()
    page.get_by_role("dialog").get_by_role("button", name=space).click()
    expect(page.get_by_role("heading", name=f"Build of {space}")).to_be_visible()


def build_ends(page: Page, *, state: str = "Succeeded") -> None:
    expect(page.locator("#status .badge").first).to_have_text(state, timeout=BUILD_MS)


def start_session(page: Page, space: str) -> str:
    """Its address: a command that is run without a script of the page leads to another."""
    open_space(page, space, "Skills")
    page.get_by_role("button", name="Start a session").click()
    expect(page.get_by_role("heading", name="Run", exact=True)).to_be_visible()
    return page.url


def run_command(page: Page, command: str, *, expected: str | re.Pattern[str]) -> None:
    page.get_by_label("A command line").fill(command)
    page.get_by_role("button", name="Run the command").click()
    expect(page.get_by_role("log", name="Output")).to_contain_text(expected, timeout=COMMAND_MS)


def run_script(page: Page, script: str, arguments: str, *, expected: str) -> None:
    page.get_by_label("A skill's script").select_option(script)
    page.get_by_label("Arguments").fill(arguments)
    page.get_by_role("button", name="Run the script").click()
    expect(page.get_by_role("log", name="Output")).to_contain_text(expected, timeout=2 * COMMAND_MS)
    expect(page.get_by_text("exit code 0")).to_be_visible()


def destroy_session(page: Page) -> None:
    page.get_by_text("Destroy", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Destroy").click()
    expect(page.get_by_text("The sandbox and its files are gone.")).to_be_visible()
