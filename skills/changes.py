"""A wished change of a space's skill set, and what it makes of a set. Pure.

A set is an ordered list of (skill id, version id), one version of a skill at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Changes", "SkillSet"]

SkillSet = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`whole` replaces the set; otherwise `add` adds or replaces by skill, then `remove` removes."""

    add: SkillSet = ()
    remove: tuple[str, ...] = ()
    whole: SkillSet | None = None

    def apply(self, present: Iterable[tuple[str, str]]) -> SkillSet:
        """The set after the change. What stays keeps its place; what is new comes last."""
        if self.whole is not None:
            return self.whole
        wanted = dict(present)
        wanted.update(self.add)
        for skill in self.remove:
            wanted.pop(skill, None)
        return tuple(wanted.items())

    def to_json(self) -> dict[str, Any]:
        if self.whole is not None:
            return {"set": [list(pair) for pair in self.whole]}
        return {"add": [list(pair) for pair in self.add], "remove": list(self.remove)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Changes:
        if "set" in data:
            return cls(whole=_pairs(data["set"]))
        return cls(add=_pairs(data.get("add", ())), remove=tuple(data.get("remove", ())))


def _pairs(items: Sequence[Sequence[str]]) -> SkillSet:
    return tuple((skill, version) for skill, version in items)
