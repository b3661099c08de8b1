"""From JSON to a plan, with every wrong shape named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

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

__all__ = ["plan_from_json"]

MAX_STEPS = 500
MAX_ITEMS = 1_000
MAX_TEXT = 4_000
_KINDS = {kind.value: kind for kind in StepKind}
_STEP_FIELDS = {"kind", "items", "source", "reason", "enabled"}


def plan_from_json(data: object) -> Plan:
    fields = _mapping(data, "The plan")
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        _refuse(
            "schema_version",
            f"The plan has schema version {str(version)[:20]}; this version reads "
            f"{SCHEMA_VERSION}: open it again and make the edits anew.",
        )
    if extra := set(fields) - {"schema_version", "steps", "unknown", "notes"}:
        _refuse("field_unknown", f"The plan has no field “{str(min(extra, key=str))[:80]}”.")
    steps = _list(fields, "steps", "The plan")
    if len(steps) > MAX_STEPS:
        _refuse("too_many_steps", f"A plan has at most {MAX_STEPS} steps: merge some.")
    unknown = [_texts(item, ("path", "sentence")) for item in _list(fields, "unknown", "The plan")]
    notes = [
        _texts(item, ("code", "sentence", "source")) for item in _list(fields, "notes", "The plan")
    ]
    return Plan(
        steps=tuple(_step(number, step) for number, step in enumerate(steps)),
        unknown=tuple(UnknownManifest(**texts) for texts in unknown),
        notes=tuple(PlanNote(**texts) for texts in notes),
    )


def _step(number: int, data: object) -> Step:
    where = f"Step {number + 1}"
    fields = _mapping(data, where, number)
    if extra := set(fields) - _STEP_FIELDS:
        name = str(min(extra, key=str))[:80]
        _refuse("field_unknown", f"{where} has no field “{name}”.", number)
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(_KINDS)
        _refuse("kind_unknown", f"{where} has no kind that exists: use one of {known}.", number)
    items = _list(fields, "items", where, number)
    if len(items) > MAX_ITEMS:
        _refuse("too_many_items", f"{where} has more than {MAX_ITEMS} items: split it.", number)
    enabled = fields.get("enabled")
    if not isinstance(enabled, bool):
        _refuse("field_type", f"“enabled” of {where} must be true or false.", number)
    return Step(
        kind=_KINDS[kind],
        items=tuple(_text(item, f"An item of {where}", number) for item in items),
        source=_text(fields.get("source"), f"“source” of {where}", number),
        reason=_text(fields.get("reason"), f"“reason” of {where}", number),
        enabled=enabled,
    )


def _texts(data: object, names: tuple[str, ...]) -> dict[str, str]:
    fields = _mapping(data, "An entry of the plan")
    return {name: _text(fields.get(name), f"“{name}” of the plan's entry") for name in names}


def _mapping(data: object, where: str, step: int | None = None) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        _refuse("field_type", f"{where} must be an object.", step)
    return data


def _list(fields: Mapping[str, Any], name: str, where: str, step: int | None = None) -> list[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        _refuse("field_type", f"“{name}” of {where} must be a list.", step)
    return value


def _text(value: object, where: str, step: int | None = None) -> str:
    if not isinstance(value, str):
        _refuse("field_type", f"{where} must be text.", step)
    if len(value) > MAX_TEXT:
        _refuse("too_long", f"{where} is longer than {MAX_TEXT:,} characters: shorten it.", step)
    return value


def _refuse(code: str, sentence: str, step: int | None = None) -> NoReturn:
    raise PlanRefused((PlanProblem(code, sentence, step),))
