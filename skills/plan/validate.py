"""The rules for the items of a plan, for edits made in a browser and for plans made here alike.

An item is passed to apt, uv or npm as one argument: what must not happen is that it is read as an option,
a file, another index, or (in apt) a removal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from skills.plan.schema import plan_from_json
from skills.plan.types import Plan, PlanProblem, PlanRefused, StepKind

__all__ = ["broken_item_rule", "validate_plan"]

_MAX_ITEM_CHARACTERS = 512
_MAX_COMMAND_CHARACTERS = 4_000
_MAX_NPM_NAME = 214
# Debian policy 5.6.1 (names), 5.6.12 (versions).
_APT = re.compile(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[0-9][A-Za-z0-9.+:~-]*)?")
_NPM_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NPM_RANGE = re.compile(r"[0-9A-Za-z^~<>=*|. +-]{1,200}")
_HIDDEN = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")


def validate_plan(data: object) -> Plan:
    """The plan that this JSON describes. Raises PlanRefused naming every refused item and the mend."""
    plan = plan_from_json(data)
    problems: list[PlanProblem] = []
    for number, step in enumerate(plan.steps):
        if not step.items:
            sentence = f"Step {number + 1} has no items: remove the step or add one."
            problems.append(PlanProblem("step_empty", sentence, number))
        for item in step.items:
            if broken := broken_item_rule(step.kind, item):
                code, rule = broken
                shown = item if len(item) <= 80 else item[:79] + "…"
                problems.append(PlanProblem(code, f"“{shown}” {rule}", number, item))
    if problems:
        raise PlanRefused(tuple(problems))
    return plan


def broken_item_rule(kind: StepKind, item: str) -> tuple[str, str] | None:
    """The code and the second half of a sentence for the rule that an item breaks, or None."""
    if not item.strip():
        return "item_empty", "is an empty item: remove it."
    if item != item.strip():
        return "item_blanks", "has blanks around it: remove them."
    if item.startswith("-"):
        return "item_option", "begins with “-” and would be read as an option: remove it."
    if _HIDDEN.search(item) or not all(c.isprintable() for c in item):
        return "item_hidden", "has invisible or control characters: write it again."
    most = _MAX_COMMAND_CHARACTERS if kind in _COMMANDS else _MAX_ITEM_CHARACTERS
    if len(item) > most:
        return "item_too_long", f"is longer than {most:,} characters: shorten it."
    return _RULES[kind](item)


def _apt(item: str) -> tuple[str, str] | None:
    if not _APT.fullmatch(item):
        return "apt_name", "is no Debian package: write name, or name=version."
    if item.partition("=")[0].partition(":")[0].endswith("-"):
        return "apt_name", "ends with “-”, which apt reads as a removal: write the package's name."
    return None


def _pip(item: str) -> tuple[str, str] | None:
    try:
        requirement = Requirement(item)
    except (InvalidRequirement, RecursionError) as error:
        reason = str(error).split("\n")[0][:120]
        return "pip_requirement", f"is no requirement ({reason}): write it like “name>=1.0”."
    if requirement.url is None:
        return None
    if "$" in requirement.url or urlsplit_scheme(requirement.url) not in ("https", "git+https"):
        return "pip_url", "points at an address that is not https: use a release from the index."
    if "@" in urlsplit(requirement.url).netloc:
        return "pip_credentials", "holds credentials: use a package that needs none."
    return None


def urlsplit_scheme(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.scheme.lower() if parts.netloc else ""


def _npm(item: str) -> tuple[str, str] | None:
    scope_at = 1 if item.startswith("@") else 0
    name, at, version_range = item[scope_at:].partition("@")
    name = item[:scope_at] + name
    if len(name) > _MAX_NPM_NAME or not _NPM_NAME.fullmatch(name):
        return "npm_name", "is no npm package: write name, @scope/name or name@version."
    if at and not _NPM_RANGE.fullmatch(version_range):
        return "npm_range", "has no version that npm's registry knows: write it like “name@^1.2.0”."
    return None


def _command(_: str) -> tuple[str, str] | None:
    return None


_COMMANDS = frozenset({StepKind.COMMAND, StepKind.CHECK})
_RULES: dict[StepKind, Callable[[str], tuple[str, str] | None]] = {
    StepKind.APT: _apt,
    StepKind.PIP: _pip,
    StepKind.NPM: _npm,
    StepKind.COMMAND: _command,
    StepKind.CHECK: _command,
}
