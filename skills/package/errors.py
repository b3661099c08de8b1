"""Refusals of the package reader.

PackageRefused       the source breaks one or several rules
└── RootChoiceNeeded it holds several skills: call again with one of `candidates`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skills.package.types import Problem, RootCandidate

__all__ = ["PackageRefused", "RootChoiceNeeded", "refuse"]


class PackageRefused(Exception):
    """The package can't be taken. `str(error)` is what to show; `problems` has every broken rule,
    `code` and `entry` are those of the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a refusal needs at least one problem")
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.sentence for problem in self.problems))

    @property
    def code(self) -> str:
        return self.problems[0].code

    @property
    def entry(self) -> str:
        return self.problems[0].entry

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "entry": self.entry,
            "sentence": str(self),
            "problems": [problem.to_json() for problem in self.problems],
        }


class RootChoiceNeeded(PackageRefused):
    """Several folders hold a SKILL.md. `candidates` are sorted, the outermost first."""

    def __init__(self, candidates: Sequence[RootCandidate]) -> None:
        self.candidates = tuple(candidates)
        places = ", ".join(f"“{candidate.root or '.'}”" for candidate in self.candidates[:10])
        more = len(self.candidates) - 10
        tail = f" and {more} more" if more > 0 else ""
        super().__init__(
            [
                Problem(
                    "several_skills",
                    f"The package holds {len(self.candidates)} skills ({places}{tail}): "
                    "choose one of these folders.",
                )
            ]
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }


def refuse(code: str, sentence: str, entry: str = "", line: int | None = None) -> PackageRefused:
    """A refusal for one broken rule, to be raised by the caller."""
    return PackageRefused([Problem(code, sentence, entry, line)])
