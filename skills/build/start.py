"""Where a build starts from. Pure, but for the rows it is handed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skills.build.context import Item
from skills.models import Release, ReleaseSkill
from skills.plan import StepKind
from skills.ports import SpacePort

__all__ = ["MAX_DEPTH", "Start", "choose_start", "inputs_digest"]

MAX_DEPTH = 12
"""How many builds may stand on each other before one starts from the base again."""
_RESULT_VERSION = 1
"""Raised when the same inputs would be installed in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`parent` None is the base template. `why` is one sentence for the log."""

    parent: Release | None
    install: tuple[Item, ...]
    remove: tuple[str, ...]
    why: str
    kept_python: frozenset[str] = frozenset()
    """Of `install`: another version stands there with exactly the same Python requirements, so its packages
    stay at the versions that they resolved to."""
    kept_node: frozenset[str] = frozenset()


def inputs_digest(template_id: str, items: Iterable[Item]) -> str:
    """Of all that decides what is installed: the base, each skill's content and plan, their order."""
    inputs = [
        _RESULT_VERSION,
        template_id,
        [[item.name, item.version.digest, item.plan.digest] for item in items],
    ]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def choose_start(
    *,
    space: SpacePort,
    template_id: str,
    items: Sequence[Item],
    carried: Sequence[ReleaseSkill],
    depth: int,
    from_base: bool,
) -> Start:
    """The current release if what it carries can simply be kept, else the base template.

    Kept are skills of the same version and plan. One that leaves or changes must not have touched the
    system outside its own folder, or its traces would stay.
    """
    parent: Release | None = space.current_release

    def base(why: str) -> Start:
        return Start(parent=None, install=tuple(items), remove=(), why=why)

    if from_base:
        return base("A clean build was asked for: it starts from the base template.")
    if parent is None:
        return base("The space has no release yet: the build starts from the base template.")
    if not parent.usable_on(space.backend):
        return base(
            f"Release {parent.generation} can't be started from: the build starts from the base template."
        )
    if parent.template_id != template_id:
        return base("The base template is a newer one: the build starts from it.")
    if depth >= MAX_DEPTH:
        return base(f"{depth} builds stand on each other: this one starts from the base template.")
    wanted = {item.name: item for item in items}
    gone: list[str] = []
    kept: set[str] = set()
    same: dict[StepKind, set[str]] = {StepKind.PIP: set(), StepKind.NPM: set()}
    for old in carried:
        name = old.version.skill.name
        new = wanted.get(name)
        if new and (new.version.pk, new.plan.digest) == (old.version_id, old.plan.plan().digest):
            kept.add(name)
            continue
        if old.plan.plan().items(StepKind.APT) or old.plan.plan().items(StepKind.COMMAND):
            return base(
                f"“{name}” changed the system outside its folder and does not stay as it is: the build "
                "starts from the base template."
            )
        if new is None:
            gone.append(name)
            continue
        for kind, names in same.items():
            if new.plan.items(kind) and new.plan.items(kind) == old.plan.plan().items(kind):
                names.add(name)
    return Start(
        parent=parent,
        install=tuple(item for item in items if item.name not in kept),
        remove=tuple(gone),
        why=f"The build starts from release {parent.generation} and keeps {len(kept)} skill(s) of it.",
        kept_python=frozenset(same[StepKind.PIP]),
        kept_node=frozenset(same[StepKind.NPM]),
    )
