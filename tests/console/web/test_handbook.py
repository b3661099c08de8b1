"""The files of docs/ are readable inside the product, and every link in and to them leads somewhere."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from markdown_it import MarkdownIt

from console.web.help.documents import document, documents
from console.web.help.topics import TOPICS, topic_of
from console.web.urls import urlpatterns
from tests.console.cast import World

DOCS = settings.BASE_DIR / "docs"
TEXTS = sorted([*DOCS.rglob("*.md"), settings.BASE_DIR / "README.md"])
NAMES = [path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))]


@pytest.fixture
def reader(world: World, client: Client) -> Client:
    client.force_login(world.people["viewer"])
    return client


def links(text: str) -> list[str]:
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for child in token.children or ():
            if address := child.attrGet("href") or child.attrGet("src"):
                found.append(str(address))
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_in_the_docs_leads_to_a_file_and_a_section(path: Any) -> None:
    for link in links(path.read_text()):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        assert target.exists(), link
        if parts.fragment:
            found = document(target.relative_to(DOCS).with_suffix("").as_posix())
            assert found is not None, link
            assert parts.fragment in found.anchors, link


@pytest.mark.parametrize("name", NAMES)
def test_every_link_of_a_page_is_a_page_of_the_console(name: str, reader: Client) -> None:
    page = reader.get(reverse("web:help", args=[name]))
    text = page.content.decode().split("<main")[1]

    assert page.status_code == 200
    for address in re.findall(r'(?:href|src)="([^"]+)"', text.split('class="prose"')[1]):
        parts = urlsplit(address)
        if parts.scheme:
            continue
        if not parts.path:
            assert f'id="{parts.fragment}"' in text, address
            continue
        answer = reader.get(parts.path)
        assert answer.status_code == 200, address
        assert not parts.fragment or f'id="{parts.fragment}"'.encode() in answer.content, address


@pytest.mark.parametrize("route", sorted(TOPICS))
def test_every_context_link_leads_to_a_section(route: str) -> None:
    topic = topic_of(route, "")
    assert topic is not None
    found = document(topic[0])
    assert found is not None
    assert topic[1] in found.anchors
    assert route in {pattern.name for pattern in urlpatterns}


def test_every_entry_of_the_navigation_has_help(reader: Client) -> None:
    text = reader.get("/").content.decode()
    areas = re.findall(r'<a href="([^"]+)"', text.split("<nav")[1].split("</nav>")[0])

    assert len(areas) >= 10
    for address in areas:
        page = reader.get(address).content.decode()
        assert re.search(r'class="help-link" href="/help/[^"#]+#[^"]+"', page), address


def test_all_guides_are_listed(reader: Client) -> None:
    text = reader.get(reverse("web:help-index")).content.decode()

    for name in NAMES:
        assert "/" in name or reverse("web:help", args=[name]) in text
    assert [found.name for found in documents()][:2] == ["space-owner", "operator"]


def test_headings_have_the_anchors_of_code_hosts() -> None:
    found = document("space-owner")

    assert found is not None
    assert found.title == "Guide for space owners"
    assert '<h2 id="the-network-policy">' in found.html
    assert "<table>" in found.html


@pytest.mark.parametrize(
    "name", ["nothing", "../README", "..%2FREADME", "screenshots/network", "examples", "admin.md"]
)
def test_only_files_of_the_docs_are_pages(name: str, reader: Client) -> None:
    assert reader.get(f"/help/{name}/").status_code == 404


@pytest.mark.parametrize("name", ["nothing.png", "..%2Fadmin.md", "admin.md"])
def test_only_screenshots_are_images(name: str, reader: Client) -> None:
    assert reader.get(f"/help/images/{name}", follow=True).status_code == 404


def test_screenshots_are_served(reader: Client) -> None:
    answer = reader.get(reverse("web:help-image", args=["network.png"]))

    assert answer.headers["Content-Type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


def test_the_handbook_asks_the_database_only_who_reads_it(reader: Client) -> None:
    def asked(name: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            reader.get(f"/help/{name}/")
        return len(queries)

    asked("admin")

    assert asked("admin") == asked("there-is-no-such-page")
