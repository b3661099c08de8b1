"""Editing a plan: one text box a kind of step, one item a line; suggestions to tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skills.plan import Plan, PlanProblem, Step, StepKind, validate_plan

__all__ = ["PlanForm"]

ADMIN = "admin"


class PlanForm:
    """Found steps are ticked or not; what a person adds goes below them, one item a line."""

    def __init__(self, data: Mapping[str, str] | None, *, plan: Plan) -> None:
        self.data = data
        self.plan = plan
        self.problems: Sequence[PlanProblem] = ()

    @property
    def found(self) -> list[tuple[int, Step, bool]]:
        """(index, step, ticked) of the steps that were found by reading."""
        return [
            (index, step, self._ticked(index, step))
            for index, step in enumerate(self.plan.steps)
            if step.source != ADMIN
        ]

    @property
    def added(self) -> list[tuple[str, str]]:
        """(kind, text) of what people added, one item a line."""
        return [(kind.value, self._added_text(kind)) for kind in StepKind]

    def edited(self) -> Plan:
        """The plan as it was edited. Raises PlanRefused that names every refused item."""
        steps: list[dict[str, Any]] = [
            {**step.to_json(), "enabled": ticked} for _, step, ticked in self.found
        ]
        for kind, text in self.added:
            items = [line.strip() for line in text.splitlines() if line.strip()]
            if items:
                steps.append(
                    {
                        "kind": kind,
                        "items": items,
                        "source": ADMIN,
                        "reason": "Added by hand.",
                        "enabled": True,
                    }
                )
        return validate_plan({**self.plan.to_json(), "steps": steps})

    def _ticked(self, index: int, step: Step) -> bool:
        return step.enabled if self.data is None else f"step-{index}" in self.data

    def _added_text(self, kind: StepKind) -> str:
        if self.data is not None:
            return self.data.get(f"add-{kind.value}", "")
        own = [step for step in self.plan.steps if step.source == ADMIN and step.kind is kind]
        return "\n".join(item for step in own for item in step.items)
