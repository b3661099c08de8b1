"""Plans: what a skill needs, found by reading it. Pure: no Django, nothing of the skill runs.

maker.py      make_plan                     types.py     steps, plans, their JSON
manifests*.py what manifests declare        scripts.py   what scripts import and start (programs.py)
prose.py      what SKILL.md suggests        knowledge.py names elsewhere: modules, programs, packages
validate.py   rules for edited plans        diff.py      what changed between two plans
"""

from skills.plan.diff import ChangedItem, PlanDiff, diff_plans, item_key
from skills.plan.maker import make_plan
from skills.plan.types import (
    SCHEMA_VERSION,
    Plan,
    PlanNote,
    PlanProblem,
    PlanRefused,
    Step,
    StepKind,
    UnknownManifest,
)
from skills.plan.validate import validate_plan

__all__ = [
    "SCHEMA_VERSION",
    "ChangedItem",
    "Plan",
    "PlanDiff",
    "PlanNote",
    "PlanProblem",
    "PlanRefused",
    "Step",
    "StepKind",
    "UnknownManifest",
    "diff_plans",
    "item_key",
    "make_plan",
    "validate_plan",
]
