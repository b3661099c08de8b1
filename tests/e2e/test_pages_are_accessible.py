"""WCAG 2.2 AA by axe on every page and dialog, in both themes and on a phone; no page scrolls sideways
on a phone. A page without a place here fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from tests.console.web.test_every_page_asks_who_you_are import RULES
from tests.e2e import steps
from tests.e2e.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(900)]

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
SPACE = "Gallery"
NO_PAGES = {
    "network-export",
    "build-log",
    "build-log-events",
    "show-picture",
    "download",
    "download-all",
    "help-image",
}
"""What answers with a file, or with a stream."""
WITH_QUERY = {
    "compare-releases": "?before=1&after=2",
    "show-file": "?path=/workspace/made.txt",
    "rename-file": "?path=/workspace/made.txt",
    "remove-file": "?path=/workspace/made.txt",
    "network": "?restore=1",
    "new-backend": "?provider=cube",
}


@pytest.fixture
def page(product: Product, browser: Browser) -> Iterator[Page]:
    """Of the admin, and free to meet pages that are refusals. Colours change at once, or axe would see
    them halfway."""
    context = browser.new_context(
        base_url=product.url,
        viewport=DESKTOP,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = context.new_page()
    steps.sign_in(page, *product.login)
    yield page
    context.close()


class Judge:
    """Collects what axe finds, by page."""

    def __init__(self) -> None:
        self.problems: dict[str, list[str]] = {}
        self.pages: set[str] = set()

    def look(self, page: Page, name: str) -> None:
        """In both themes and on a phone, and each of its dialogs."""
        self.pages.add(name)
        self._judge(page, f"{name}, light")
        for dialog in self._dialogs(page):
            page.evaluate("id => document.getElementById(id).showModal()", dialog)
            self._judge(page, f"{name}, dialog {dialog}")
            page.evaluate("id => document.getElementById(id).close()", dialog)
        page.emulate_media(color_scheme="dark")
        self._judge(page, f"{name}, dark")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        self._judge(page, f"{name}, phone")
        too_wide = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if too_wide > 0:
            self.problems[f"{name}, width"] = [f"{too_wide} px too wide"]
        page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]

    def _judge(self, page: Page, name: str) -> None:
        found = Axe().run(page, options={"runOnly": STANDARDS}).response["violations"]
        if told := [f"{rule['id']}: {node['target']}" for rule in found for node in rule["nodes"]]:
            self.problems[name] = told

    def _dialogs(self, page: Page) -> list[str]:
        """One of each kind: a list has a dialog for each row."""
        ids: list[str] = page.eval_on_selector_all("dialog[id]", "all => all.map(d => d.id)")
        kinds = {re.sub(r"_\w{26}$", "", dialog): dialog for dialog in ids}
        return list(kinds.values())


def identity(page: Page) -> str:
    """The last id in the address."""
    return re.findall(r"/([a-z]{3}_\w+|\d+)", page.url)[-1]


def seed(page: Page, folder: Path) -> dict[str, str]:
    """A space with one of everything, made as people make it; by the names that routes use."""
    ids: dict[str, str] = {"name": "space-owner"}
    steps.new_space(page, SPACE, "gallery")
    ids["space_id"] = identity(page)

    steps.upload_skill(page, steps.make_skill(folder / "a.zip", name="a", says="one"), "a")
    ids["skill_id"], ids["number"] = re.findall(r"/(skl_\w+|\d+)", page.url)[-2:]
    page.get_by_role("link", name="Edit the plan").click()
    page.get_by_label("Add check").fill("python3 scripts/say.py")
    page.get_by_role("button", name="Save the plan").click()
    steps.install(page, SPACE)
    steps.build_ends(page)
    steps.upload_skill(page, steps.make_skill(folder / "b.zip", name="b", says="two"), "b")
    steps.install(page, SPACE)
    steps.build_ends(page)
    ids["build_id"] = identity(page)
    steps.open_space(page, SPACE, "Releases")
    page.get_by_role("rowheader").get_by_role("link", name="1", exact=True).click()
    ids["release_id"] = identity(page)

    steps.start_session(page, SPACE)
    ids["pk"] = identity(page)
    steps.run_command(page, "echo made > /workspace/made.txt && cat made.txt", expected="made")

    page.goto("/backends/")
    page.get_by_role("rowheader").get_by_role("link", name="This machine").click()
    ids["backend_id"] = identity(page)
    page.get_by_role("button", name="Check it now").click()
    page.get_by_role("button", name="Try the eight points").click()
    expect(page.locator("#points tbody tr")).to_have_count(8, timeout=240_000)
    ids["verification_id"] = identity(page)

    page.goto("/reconcile/")
    page.get_by_role("button", name="Run a dry run").first.click()
    expect(page.get_by_text("sandboxes seen")).to_be_visible(timeout=60_000)
    ids["report_id"] = identity(page)

    page.goto("/builds/")
    page.get_by_label("All rows of this page").check()
    page.get_by_role("button", name="Cancel…").click()
    ids["run_id"] = identity(page)
    return ids


def address(route: str, ids: dict[str, str]) -> str:
    from console.web.urls import urlpatterns

    wanted = next(found for found in urlpatterns if found.name == route).pattern.converters
    missing = set(wanted) - set(ids)
    assert not missing, f"seed a page of {route}: it has no {missing}"
    return reverse(f"web:{route}", kwargs={name: ids[name] for name in wanted})


def test_every_page_of_the_routes(page: Page, tmp_path: Path) -> None:
    ids = seed(page, tmp_path)
    judge = Judge()
    routes = [name for name, rule in RULES.items() if rule.method == "get"]
    for route in routes:
        if route in NO_PAGES:
            continue
        page.goto(address(route, ids) + WITH_QUERY.get(route, ""))
        judge.look(page, route)

    assert len(judge.pages) > 40
    print(json.dumps(judge.problems, indent=1))
    assert judge.problems == {}


def wrong_password(page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/sign-in/")
    page.get_by_label("User name").fill("nobody")
    page.get_by_label("Password").fill("nothing")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()


def nothing_there(page: Page) -> None:
    page.goto("/no/such/page/")


def of_another(page: Page) -> None:
    page.goto("/spaces/spc_00000000000000000000000000/")


def a_refusal(page: Page) -> None:
    steps.open_space(page, "First space", "Network")
    page.locator("#policy [name=number]").evaluate("input => input.remove()")
    page.locator("#policy").evaluate("form => form.submit()")
    page.get_by_text("load the page again").wait_for()


def preset(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("button", name=name, exact=True, pressed=True).wait_for()


def bad_entries(page: Page) -> None:
    steps.open_space(page, "First space", "Network")
    preset(page, "Registries only")
    page.get_by_label("Deny, entry 1").fill("nodots 10.0.0.0/8")
    page.get_by_text("only IPv4 addresses").wait_for()


def a_diff_and_a_tested_host(page: Page) -> None:
    steps.open_space(page, "First space", "Network")
    preset(page, "Closed")
    page.get_by_label("Allow, entry 1").fill("10.1.2.3, example.org")
    page.get_by_text("opens private addresses").wait_for()
    page.get_by_label("Host, address or URL").fill("example.org")
    page.get_by_role("button", name="Test", exact=True).click()
    page.get_by_text("Decided by").wait_for()


def two_editors(page: Page) -> None:
    steps.open_space(page, "First space", "Network")
    other = page.context.new_page()
    steps.open_space(other, "First space", "Network")
    other.get_by_label("Inbound is open").click()
    other.get_by_role("button", name="Save as a new revision").click()
    other.get_by_text("holds for every new sandbox").wait_for()
    other.close()
    preset(page, "Closed")
    page.get_by_role("button", name="Put my changes on top").wait_for()


def a_refused_import(page: Page) -> None:
    steps.open_space(page, "First space", "Network")
    page.get_by_label("Or paste it").fill('{"egress": true}')
    page.get_by_role("button", name="Compare with the present policy").click()
    page.get_by_text("no field called egress").wait_for()


def a_refused_package(page: Page) -> None:
    page.goto("/catalog/upload/")
    page.get_by_text("Or paste a SKILL.md").first.click()
    page.get_by_label("Or paste a SKILL.md").fill("no front matter")
    page.get_by_role("button", name="Upload and inspect").click()
    page.get_by_role("alert").wait_for()


def a_refused_form(page: Page) -> None:
    page.goto("/members/")
    page.get_by_text("Add a person", exact=True).click()
    page.get_by_label("User name").first.fill("x y")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("alert").first.wait_for()


def a_filter_without_a_match(page: Page) -> None:
    page.goto("/sessions/?q=there-is-none")
    page.get_by_text("Nothing matches").wait_for()


@pytest.mark.parametrize(
    "get_there",
    [
        nothing_there,
        of_another,
        a_refusal,
        bad_entries,
        a_diff_and_a_tested_host,
        two_editors,
        a_refused_import,
        a_refused_package,
        a_refused_form,
        a_filter_without_a_match,
        wrong_password,
    ],
    ids=lambda get_there: get_there.__name__,
)
def test_what_pages_say_when_something_is_wrong(
    get_there: Callable[[Page], None], page: Page
) -> None:
    get_there(page)
    judge = Judge()

    judge.look(page, get_there.__name__)

    print(json.dumps(judge.problems, indent=1))
    assert judge.problems == {}
