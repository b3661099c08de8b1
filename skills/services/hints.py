"""Turning a verification's hint into a plan."""

from __future__ import annotations

from dataclasses import replace

from sandboxes.errors import InvalidRequest
from skills.models import Build, BuildSkill
from skills.plan import Plan, PlanRefused, Step, StepKind, validate_plan
from skills.ports import Actor
from skills.services.catalog import save_plan

__all__ = ["apply"]


def apply(*, build: Build, index: int, actor: Actor) -> None:
    """Add to the skill's newest plan what the hint of check number `index` names. Idempotent.
    InvalidRequest if there is no such hint."""
    checks = build.report.get("checks", [])
    check = checks[index] if 0 <= index < len(checks) else {}
    hint = check.get("hint")
    if not hint:
        raise InvalidRequest("This build's report has no such repair hint; look at it again.")
    item = _item(build, check["skill"])
    plan = with_item(
        item.version.current_plan.plan(), StepKind(hint["kind"]), hint["item"], hint["sentence"]
    )
    try:
        validate_plan(plan.to_json())
    except PlanRefused as refusal:
        raise InvalidRequest(f"The hint can't be used: {refusal}") from refusal
    save_plan(version=item.version, plan=plan, actor=actor)


def with_item(plan: Plan, kind: StepKind, item: str, reason: str) -> Plan:
    """The plan with the item on: a suggestion of it is enabled, else a step is added."""
    if item in plan.items(kind):
        return plan
    steps = list(plan.steps)
    for number, step in enumerate(steps):
        if step.kind is kind and step.items == (item,):
            steps[number] = replace(step, enabled=True)
            return replace(plan, steps=tuple(steps))
    steps.append(Step(kind, (item,), "admin", reason, True))
    return replace(plan, steps=tuple(steps))


def _item(build: Build, skill: str) -> BuildSkill:
    found = build.items.select_related("version__skill").filter(version__skill__name=skill).first()
    if found is None:
        raise InvalidRequest(f"“{skill}” is not in this build; look at its report again.")
    return found
