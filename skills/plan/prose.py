"""Install lines in SKILL.md, README.md and scripts: what the author tells a reader to install. Suggested, never on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from skills.package.install_commands import install_commands
from skills.package.texts import LineCounter, interpreter_of
from skills.plan.reading import Reading
from skills.plan.types import Step, StepKind
from skills.plan.validate import broken_item_rule

__all__ = ["declared_checks", "prose_steps"]

_KINDS = {"pip": StepKind.PIP, "npm": StepKind.NPM, "apt": StepKind.APT}
_FILLERS = frozenset(
    [
        "a",
        "an",
        "all",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "dependencies",
        "dependency",
        "first",
        "following",
        "for",
        "from",
        "have",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "library",
        "libraries",
        "missing",
        "module",
        "modules",
        "more",
        "name",
        "needed",
        "not",
        "of",
        "on",
        "once",
        "only",
        "or",
        "package",
        "package-name",
        "package_name",
        "packages",
        "pip",
        "required",
        "requirements",
        "run",
        "step",
        "system",
        "that",
        "the",
        "them",
        "then",
        "these",
        "this",
        "to",
        "use",
        "using",
        "via",
        "when",
        "with",
        "you",
        "your",
        "yourself",
    ]
)
_WORDS_IN_COMMENTS = re.compile(
    r"#[^\n]{0,200}?\b(ffmpeg|poppler-utils|tesseract-ocr|imagemagick|ghostscript|pandoc|graphviz)\b",
    re.IGNORECASE,
)


def prose_steps(reading: Reading) -> Iterator[Step]:
    """One suggestion for every install line that a plan could follow."""
    for path in reading.sizes:
        text = reading.text(path)
        if text is None or not _is_prose(path, text):
            continue
        lines = LineCounter(text)
        for command in sorted(install_commands(text), key=lambda command: command.position):
            kind = _KINDS.get(command.kind)
            items = _items(kind, command.packages) if kind else ()
            if kind and items:
                line = lines.at(command.position)
                reason = f"{path} tells its reader to install it with {command.manager}."
                yield Step(kind, items, f"{path}:{line}", reason, False)
        if path.endswith(".txt"):
            for match in _WORDS_IN_COMMENTS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                reason = f"A comment in {path} names it."
                yield Step(StepKind.APT, (match[1].lower(),), f"{path}:{line}", reason, False)


def _is_prose(path: str, text: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return (
        name in ("skill.md", "readme.md", "install.md", "setup.md", "makefile", "justfile")
        or (name.endswith(".txt") and "require" in name)
        or interpreter_of(path, text) != ""
    )


def _items(kind: StepKind, packages: tuple[str, ...]) -> tuple[str, ...]:
    words = (word for word in packages if word.lower() not in _FILLERS)
    return tuple(dict.fromkeys(word for word in words if not broken_item_rule(kind, word)))


def declared_checks(frontmatter: Mapping[str, Any], source: str) -> Iterator[Step]:
    """The skill's own checks: `verify`, a command line or a list of them, at the top or in metadata."""
    metadata = frontmatter.get("metadata")
    for fields in (frontmatter, metadata if isinstance(metadata, Mapping) else {}):
        value = fields.get("verify")
        lines = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        items = tuple(
            line.strip()
            for line in lines
            if isinstance(line, str) and not broken_item_rule(StepKind.CHECK, line.strip())
        )
        if items:
            yield Step(StepKind.CHECK, items, source, "The skill asks to be checked like this.")
