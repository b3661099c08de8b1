"""The values of a plan. All frozen; `to_json` and `from_json` are exact inverses, for a JSON column."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "SCHEMA_VERSION",
    "Plan",
    "PlanNote",
    "PlanProblem",
    "PlanRefused",
    "Step",
    "StepKind",
    "UnknownManifest",
]

SCHEMA_VERSION = 1
"""Of the JSON. A reader refuses a plan that is newer than itself."""


class StepKind(enum.StrEnum):
    APT = "apt"
    """Debian packages, `name`, `name:arch` or `name=version`; installed as root in the image."""
    PIP = "pip"
    """PEP 508 requirements; installed into the skill's own virtual environment."""
    NPM = "npm"
    """`name` or `name@range`; installed into the skill's own node_modules."""
    COMMAND = "command"
    """Shell command lines, run as root in the skill's folder after the packages, with the skill's
    `.venv/bin` and `node_modules/.bin` first on PATH."""
    CHECK = "check"
    """Shell command lines, run as the session's user in the skill's folder with the same PATH; each has
    to exit 0. `command -v NAME` asks for a program."""


@dataclass(frozen=True, slots=True)
class Step:
    kind: StepKind
    items: tuple[str, ...]
    source: str
    """Where it was found, as `path:line`; `admin` for what a person added."""
    reason: str
    """One sentence for the person who reviews the plan."""
    enabled: bool = True
    """False for a suggestion: shown, and left out of the build until a person turns it on."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "items": list(self.items),
            "source": self.source,
            "reason": self.reason,
            "enabled": self.enabled,
        }


@dataclass(frozen=True, slots=True)
class UnknownManifest:
    """A file that declares dependencies in a way that plans don't cover."""

    path: str
    sentence: str

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "sentence": self.sentence}


@dataclass(frozen=True, slots=True)
class PlanNote:
    """Something about a manifest or script that could not be taken over as it stands."""

    code: str
    sentence: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "sentence": self.sentence, "source": self.source}


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    unknown: tuple[UnknownManifest, ...] = ()
    notes: tuple[PlanNote, ...] = ()

    def items(self, kind: StepKind) -> tuple[str, ...]:
        """What a build has to do for one kind: the enabled items in order, each once."""
        steps = (step for step in self.steps if step.kind is kind and step.enabled)
        return tuple(dict.fromkeys(item for step in steps for item in step.items))

    @property
    def digest(self) -> str:
        """Hex SHA-256 of what a build would do. Suggestions, sources and reasons don't count."""
        todo = {kind.value: self.items(kind) for kind in StepKind}
        return hashlib.sha256(json.dumps(todo, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "steps": [step.to_json() for step in self.steps],
            "unknown": [manifest.to_json() for manifest in self.unknown],
            "notes": [note.to_json() for note in self.notes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of `to_json`. Raises PlanRefused when the data is no plan of this schema.

        Checks the shape only: what comes from a person goes through `validate_plan`.
        """
        from skills.plan.schema import plan_from_json

        return plan_from_json(data)


@dataclass(frozen=True, slots=True)
class PlanProblem:
    code: str
    sentence: str
    step: int | None = None
    """Which step, counted from 0; None for the plan as a whole."""
    item: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "sentence": self.sentence,
            "step": self.step,
            "item": self.item,
        }


class PlanRefused(ValueError):
    """A plan that can't be taken as it was edited. `problems` names every refused item."""

    def __init__(self, problems: tuple[PlanProblem, ...]) -> None:
        if not problems:
            raise ValueError("a refusal needs at least one problem")
        self.problems = problems
        super().__init__(" ".join(problem.sentence for problem in problems))

    @property
    def code(self) -> str:
        return self.problems[0].code

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "problems": [problem.to_json() for problem in self.problems]}
