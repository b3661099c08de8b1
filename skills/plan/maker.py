"""Puts a plan together: what manifests declare, what scripts need, what prose suggests, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skills.package import Package
from skills.plan.diff import item_key
from skills.plan.manifests import read_manifests
from skills.plan.prose import declared_checks, prose_steps
from skills.plan.reading import Reading
from skills.plan.schema import MAX_STEPS
from skills.plan.scripts import distribution_steps, script_steps
from skills.plan.types import Plan, PlanNote, Step, StepKind

__all__ = ["make_plan"]

_ORDER = {kind: number for number, kind in enumerate(StepKind)}


def make_plan(package: Package) -> Plan:
    """What a package needs, found by reading its files. Pure and deterministic; runs and imports nothing.

    Manifests come first and are on. Imports are on where no manifest declares Python packages at all, and
    suggestions otherwise; the same holds for Node and for programs. Prose is only ever suggested.
    """
    reading = Reading(package)
    manifests = read_manifests(reading)
    found = [
        *manifests.steps,
        *script_steps(
            reading,
            pip=manifests.declares(StepKind.PIP),
            npm=manifests.declares(StepKind.NPM),
            apt=manifests.declares(StepKind.APT),
        ),
        *declared_checks(package.frontmatter, f"{package.skill_md_path}:1"),
        *prose_steps(reading),
    ]
    steps = list(_each_once([*found, *_beside(found)]))
    steps.sort(key=lambda step: (_ORDER[step.kind], not step.enabled))
    notes = [*manifests.notes, *_conflicts(steps)]
    if len(steps) > MAX_STEPS:
        sentence = f"{len(steps) - MAX_STEPS} further suggestions are not listed."
        notes.append(PlanNote("steps_cut", sentence, f"{package.skill_md_path}:1"))
        steps = sorted(steps, key=lambda step: not step.enabled)[:MAX_STEPS]
        steps.sort(key=lambda step: (_ORDER[step.kind], not step.enabled))
    return Plan(tuple(steps), tuple(manifests.unknown), tuple(notes))


def _beside(found: Iterable[Step]) -> Iterator[Step]:
    for step in found:
        if step.kind is StepKind.PIP:
            for item in step.items:
                yield from distribution_steps(step, item_key(StepKind.PIP, item))


def _each_once(found: list[Step]) -> Iterator[Step]:
    """Drops what an earlier step covers: the same text always, and for a suggestion the same name."""
    texts: set[tuple[StepKind, str]] = set()
    names: set[tuple[StepKind, str]] = set()
    for step in sorted(found, key=lambda step: not step.enabled):
        kept = []
        for item in step.items:
            text, name = (step.kind, item), (step.kind, item_key(step.kind, item))
            if text in texts or (name in names and not _is_manifest(step)):
                continue
            texts.add(text)
            names.add(name)
            kept.append(item)
        if kept:
            yield Step(step.kind, tuple(kept), step.source, step.reason, step.enabled)


def _is_manifest(step: Step) -> bool:
    return step.enabled and step.reason.startswith("It is declared in")


def _conflicts(steps: Iterable[Step]) -> Iterator[PlanNote]:
    """Two manifests that ask for different versions: the installer would refuse, so say it early."""
    first: dict[tuple[StepKind, str], tuple[str, str]] = {}
    for step in steps:
        if not step.enabled or step.kind not in (StepKind.PIP, StepKind.NPM):
            continue
        for item in step.items:
            if ";" in item:
                continue
            key = (step.kind, item_key(step.kind, item))
            other, source = first.setdefault(key, (item, step.source))
            if other != item:
                sentence = f"“{item}” and “{other}” ({source}) ask for the same package: keep one."
                yield PlanNote("versions_differ", sentence, step.source)
