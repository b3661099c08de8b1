"""The files of `docs/` as pages: which there are, and each as safe HTML with anchors and its links
turned to pages."""

from __future__ import annotations

import itertools
import posixpath
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import nh3
from django.conf import settings
from django.urls import reverse
from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Document", "Section", "document", "documents", "image"]

FOLDER: Path = settings.BASE_DIR / "docs"
_IMAGES = "screenshots"
_FIRST = ("space-owner", "operator", "admin", "operations", "weknora", "api", "gateway", "backends")
"""What people read most; others follow by name."""
_SOURCES = {".md": "markdown", ".py": "python"}
_NO_ANCHOR = re.compile(r"[^\w\- ]")
_ATTRIBUTES = {
    "a": {"href"},
    "img": {"src", "alt"},
    "div": {"class", "tabindex"},
    "pre": {"tabindex"},
    "code": {"class"},
    "th": {"align"},
    "td": {"align"},
    **{f"h{level}": {"id"} for level in range(2, 7)},
}
_TAGS = {
    *_ATTRIBUTES,
    *("p", "ul", "ol", "li", "em", "strong", "table", "thead", "tbody", "tr", "br", "hr"),
    "blockquote",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the second or third level."""

    anchor: str
    title: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`html` is without the title, which the page shows itself."""

    name: str
    title: str
    html: str
    sections: tuple[Section, ...]
    anchors: frozenset[str]


def documents() -> list[Document]:
    """All guides, in the order in which people look for them; examples are reached by their links."""
    names = sorted(
        (name for name in _files() if "/" not in name),
        key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name),
    )
    return [found for name in names if (found := document(name))]


def document(name: str) -> Document | None:
    """By its path in `docs/` without the ending; None for every other name."""
    path = _files().get(name)
    if path is None:
        return None
    return _rendered(name, path, path.stat().st_mtime_ns)


def image(name: str) -> Path | None:
    """A screenshot by its file name; None for every other name."""
    return _images().get(name)


@cache
def _files() -> dict[str, Path]:
    return {
        path.relative_to(FOLDER).with_suffix("").as_posix(): path
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _SOURCES
    }


@cache
def _images() -> dict[str, Path]:
    return {path.name: path for path in (FOLDER / _IMAGES).glob("*.png")}


@lru_cache(maxsize=64)
def _rendered(name: str, path: Path, _changed_ns: int) -> Document:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        html = f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        return Document(name=name, title=path.name, html=html, sections=(), anchors=frozenset())
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(text)
    title = path.stem
    if tokens and tokens[0].type == "heading_open":
        title = _plain(tokens[1])
        del tokens[:3]
    sections = _anchored(tokens)
    for token in tokens:
        for child in token.children or ():
            _turn(child, name)
    raw = parser.renderer.render(tokens, parser.options, {})
    raw = raw.replace("<table>", '<div class="table-wrap" tabindex="0"><table>')
    raw = raw.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    html = nh3.clean(raw, tags=_TAGS, attributes=_ATTRIBUTES)
    return Document(
        name=name,
        title=title,
        html=html,
        sections=tuple(section for section in sections if section.level <= 3),
        anchors=frozenset(section.anchor for section in sections),
    )


def _anchored(tokens: list[Token]) -> list[Section]:
    """Gives each heading the id that links to it name: as code hosts make them, so that one link works
    in both places."""
    found: list[Section] = []
    seen: dict[str, int] = {}
    for token, inline in itertools.pairwise(tokens):
        if token.type != "heading_open":
            continue
        title = _plain(inline)
        slug = _NO_ANCHOR.sub("", title.lower()).replace(" ", "-")
        times = seen[slug] = seen.get(slug, -1) + 1
        anchor = f"{slug}-{times}" if times else slug
        token.attrSet("id", anchor)
        found.append(Section(anchor, title, int(token.tag[1])))
    return found


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ())


def _turn(token: Token, page: str) -> None:
    """A link to another file of `docs/` becomes one to its page, a screenshot its address."""
    if token.type == "link_open":
        token.attrSet("href", _address(str(token.attrGet("href")), page))
    elif token.type == "image":
        name = posixpath.basename(str(token.attrGet("src")))
        token.attrSet("src", reverse("web:help-image", args=[name]))


def _address(href: str, page: str) -> str:
    """What a file of `docs/` doesn't have, such as the source, keeps its address."""
    parts = urlsplit(href)
    if parts.scheme or not parts.path or parts.path.startswith("/"):
        return href
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), parts.path))
    name = posixpath.splitext(path)[0]
    if name not in _files():
        return href
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    return reverse("web:help", args=[name]) + anchor
