"""What the readers of manifests and scripts share: the package's texts, and a place for what they find."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from skills.package import Package
from skills.package.secret_strings import mask_secrets
from skills.package.texts import read_text, spelled_out
from skills.plan.types import PlanNote, StepKind
from skills.plan.validate import broken_item_rule

__all__ = ["Declared", "Manifest", "Reading", "is_side_folder", "line_of"]

_SIDE_PARTS = frozenset(
    {"test", "tests", "example", "examples", "template", "templates", "assets", "fixtures", "evals",
     "benchmarks", "demo", "demos"}
)  # fmt: skip


class Reading:
    """A package's files as text, each decoded once."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.sizes = {file.path: file.size_bytes for file in package.files}
        self._texts: dict[str, str | None] = {}

    def text(self, path: str) -> str | None:
        """The file with plain newlines; None for a binary file and for one that does not exist."""
        if path not in self._texts:
            raw = read_text(self.package.content, path) if path in self.sizes else None
            self._texts[path] = raw.replace("\r\n", "\n") if raw and "\r" in raw else raw
        return self._texts[path]


@dataclass(frozen=True, slots=True)
class Declared:
    """One dependency as a manifest has it. Valid by the rules of `validate.py`."""

    kind: StepKind
    item: str
    line: int


@dataclass
class Manifest:
    """What one manifest says. `add` keeps what a build can do and notes what it can't."""

    path: str
    declared: list[Declared] = field(default_factory=list)
    suggested: list[Declared] = field(default_factory=list)
    notes: list[PlanNote] = field(default_factory=list)

    def add(self, kind: StepKind, item: str, line: int, *, suggested: bool = False) -> None:
        item = " ".join(item.split())
        if broken := broken_item_rule(kind, item):
            shown = spelled_out(mask_secrets(item)[:120])
            self.note("item_left_out", f"“{shown}” {broken[1]}", line)
            return
        (self.suggested if suggested else self.declared).append(Declared(kind, item, line))

    def note(self, code: str, sentence: str, line: int = 1) -> None:
        self.notes.append(PlanNote(code, sentence, f"{self.path}:{line}"))


def is_side_folder(path: str) -> bool:
    """Below tests, examples or templates: what lies there is not what the skill itself needs."""
    return not _SIDE_PARTS.isdisjoint(path.lower().split("/")[:-1])


def line_of(text: str, needle: str) -> int:
    """The line on which a declared name first stands, as a word; 1 when it can't be told."""
    match = re.search(rf"(?<![\w-]){re.escape(needle)}(?![\w-])", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1
