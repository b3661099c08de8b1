"""What changed between two plans, as a person reads it: per thing that a build does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from skills.plan.types import Plan, StepKind

__all__ = ["ChangedItem", "PlanDiff", "diff_plans", "item_key"]


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """`before` is empty for something added, `after` for something removed."""

    kind: StepKind
    name: str
    before: str
    after: str

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "name": self.name,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True)
class PlanDiff:
    added: tuple[ChangedItem, ...] = ()
    removed: tuple[ChangedItem, ...] = ()
    changed: tuple[ChangedItem, ...] = ()

    @property
    def same(self) -> bool:
        """True when both plans make the same build."""
        return not (self.added or self.removed or self.changed)

    def to_json(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "added": [item.to_json() for item in self.added],
            "removed": [item.to_json() for item in self.removed],
            "changed": [item.to_json() for item in self.changed],
        }


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """Compares enabled items only: turning a suggestion on counts as adding it."""
    old, new = _by_key(before), _by_key(after)
    items = [
        ChangedItem(kind, name, old.get((kind, name), ""), new.get((kind, name), ""))
        for kind, name in sorted(old.keys() | new.keys())
    ]
    return PlanDiff(
        added=tuple(item for item in items if not item.before),
        removed=tuple(item for item in items if not item.after),
        changed=tuple(
            item for item in items if item.before and item.after != item.before and item.after
        ),
    )


def item_key(kind: StepKind, item: str) -> str:
    """What an item is about, without its version: `PyYAML>=6` is `pyyaml`. A command is itself."""
    if kind is StepKind.PIP:
        try:
            return canonicalize_name(Requirement(item).name)
        except InvalidRequirement:
            return item
    if kind is StepKind.NPM:
        return item[0] + item[1:].partition("@")[0] if item else item
    if kind is StepKind.APT:
        return re.split("[=:]", item, maxsplit=1)[0]
    return item


def _by_key(plan: Plan) -> dict[tuple[StepKind, str], str]:
    """Items that share a name (markers make them differ) are one entry with all their texts."""
    found: dict[tuple[StepKind, str], list[str]] = {}
    for kind in StepKind:
        for item in plan.items(kind):
            found.setdefault((kind, item_key(kind, item)), []).append(item)
    return {key: ", ".join(items) for key, items in found.items()}
