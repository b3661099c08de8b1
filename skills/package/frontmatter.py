"""The head of a SKILL.md: fences by line, YAML 1.2, and the one repair that real skills need.

The YAML is composed into nodes and read from there, for three reasons: every problem knows its line, duplicate
keys and anchors are seen before anything is built, and `version: 1.10` stays "1.10".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from skills.package.errors import PackageRefused, refuse
from skills.package.types import LIMITS, Limits, Problem, Repair

__all__ = ["Head", "read_head", "split_fences"]

_MAX_BRACKETS = 500
"""More opening brackets than any head needs; past that a parser only burns time."""
_MAX_INT_DIGITS = 18
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map", "merge", "value")
)
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}):[ \t]+(\S.*)")
_PROSE_FIELDS = frozenset({"name", "description", "compatibility", "license", "when_to_use"})
_QUOTED_OR_BLOCK = ("'", '"', "|", ">")
_RESERVED_START = tuple("@`%*&!{[")


@dataclass(frozen=True, slots=True)
class Head:
    """What a SKILL.md says about itself."""

    frontmatter: Mapping[str, Any]
    """JSON-ready. Scalars that YAML 1.2's core schema has no JSON type for are strings."""
    scalars: Mapping[str, str]
    """Top-level scalars as they are written, before any typing."""
    lines: Mapping[str, int]
    """Where in SKILL.md each top-level field stands."""
    yaml_text: str
    body: str
    repairs: tuple[Repair, ...]
    had_bom: bool
    had_crlf: bool


def read_head(raw: bytes, entry: str, limits: Limits = LIMITS) -> Head:
    """Read a SKILL.md. Raises PackageRefused with the line and the mend."""
    if len(raw) > limits.max_skill_md_bytes:
        raise refuse(
            "skill_md_too_large",
            f"“{entry}” is larger than {limits.max_skill_md_bytes:,} bytes: move the details to "
            "files under references/.",
            entry,
        )
    text, had_bom = _decoded(raw, entry)
    had_crlf = "\r" in text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    yaml_text, body = split_fences(text, entry)
    if len(yaml_text.encode()) > limits.max_frontmatter_bytes:
        raise refuse(
            "frontmatter_too_large",
            f"The frontmatter of “{entry}” is larger than {limits.max_frontmatter_bytes:,} bytes: "
            "move text to the body.",
            entry,
        )
    node, repairs = _composed(yaml_text, entry)
    fields = _Fields(entry)
    frontmatter = fields.mapping(node)
    return Head(
        frontmatter=frontmatter,
        scalars={
            key.value: value.value for key, value in node.value if isinstance(value, ScalarNode)
        },
        lines={key.value: key.start_mark.line + 2 for key, _ in node.value},
        yaml_text=yaml_text,
        body=body.strip("\n"),
        repairs=repairs,
        had_bom=had_bom,
        had_crlf=had_crlf,
    )


def _decoded(raw: bytes, entry: str) -> tuple[str, bool]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refuse(
            "skill_md_not_utf8",
            f"“{entry}” is not UTF-8 text (line {line}): save it as UTF-8.",
            entry,
            line,
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise refuse(
            "skill_md_nul",
            f"“{entry}” has a NUL character in line {line}: save it as plain UTF-8 text.",
            entry,
            line,
        )
    return text, raw.startswith(b"\xef\xbb\xbf")


def split_fences(text: str, entry: str) -> tuple[str, str]:
    """The YAML between the first two lines that are exactly `---`, and the body behind them.

    By line, so that `---` inside of a quoted or indented value is content.
    """
    lines = text.split("\n")
    if lines[0].rstrip(" \t") != "---":
        raise refuse(
            "frontmatter_missing",
            f"“{entry}” has no frontmatter: its line 1 must be “---”, then name and description, "
            "then a closing “---”.",
            entry,
            1,
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip(" \t") == "---":
            return "\n".join(lines[1:number]) + "\n", "\n".join(lines[number + 1 :])
    last = _last_field_line(lines)
    raise refuse(
        "frontmatter_unclosed",
        f"The frontmatter of “{entry}” opens in line 1 and is never closed: add a line “---” "
        f"after line {last}.",
        entry,
        last,
    )


def _last_field_line(lines: list[str]) -> int:
    """The best guess at where the closing fence was meant to be, as a line number."""
    last = 1
    for number, line in enumerate(lines[1:], start=2):
        if _FIELD.match(line) or line.startswith((" ", "\t", "- ")):
            last = number
        elif not line.strip() or line.startswith("#"):
            break
    return last


def _composed(yaml_text: str, entry: str) -> tuple[MappingNode, tuple[Repair, ...]]:
    repairs: tuple[Repair, ...] = ()
    try:
        node = _compose(yaml_text, entry)
    except PackageRefused as refusal:
        if refusal.code not in ("yaml_invalid", "yaml_alias", "yaml_tag"):
            raise
        repaired, repairs = _repaired(yaml_text)
        if not repairs:
            raise
        try:
            node = _compose(repaired, entry)
        except PackageRefused:
            raise refusal from None
    if isinstance(node, MappingNode):
        return node, repairs
    raise refuse(
        "frontmatter_not_mapping",
        f"The frontmatter of “{entry}” must be lines of “field: value”, at least name and "
        "description.",
        entry,
        2,
    )


def _compose(yaml_text: str, entry: str) -> Node | None:
    if yaml_text.count("[") + yaml_text.count("{") > _MAX_BRACKETS:
        raise refuse(
            "yaml_too_complex",
            f"The frontmatter of “{entry}” has more than {_MAX_BRACKETS} brackets: simplify it.",
            entry,
        )
    try:
        if "&" in yaml_text:
            _refuse_event_anchors(yaml_text, entry)
        node: Node | None = YAML(typ="safe", pure=True).compose(yaml_text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 2
        if error.problem and "alias" in error.problem:
            raise _no_anchors(entry, line) from error
        raise _invalid(entry, line, str(error.problem or error.context or "")) from error
    except YAMLError as error:
        raise _invalid(entry, 2, "a character that YAML does not allow") from error
    except (RecursionError, ValueError, LookupError) as error:
        raise _invalid(entry, 2, "too deeply nested or malformed") from error
    if node is not None:
        _refuse_anchors(node, entry)
    return node


def _refuse_event_anchors(yaml_text: str, entry: str) -> None:
    """Before anything is composed: there, an anchor that is used twice is a warning of the library."""
    for event in YAML(typ="safe", pure=True).parse(yaml_text):
        if getattr(event, "anchor", None) is not None:
            raise _no_anchors(entry, event.start_mark.line + 2)


def _refuse_anchors(top: Node, entry: str) -> None:
    pending, seen = [top], set()
    while pending:
        node = pending.pop()
        line = node.start_mark.line + 2
        if node.anchor is not None or id(node) in seen:
            raise _no_anchors(entry, line)
        seen.add(id(node))
        if str(node.tag) not in _TAGS:
            raise refuse(
                "yaml_tag",
                f"“{entry}” uses a YAML tag (!…) in line {line}: put the value in quotes.",
                entry,
                line,
            )
        if isinstance(node, MappingNode):
            pending.extend(part for pair in node.value for part in pair)
        elif isinstance(node, SequenceNode):
            pending.extend(node.value)


def _no_anchors(entry: str, line: int) -> PackageRefused:
    return refuse(
        "yaml_alias",
        f"“{entry}” uses a YAML anchor or alias (& or *) in line {line}: write the value out, or "
        "put it in quotes.",
        entry,
        line,
    )


def _invalid(entry: str, line: int, reason: str) -> PackageRefused:
    because = f" ({reason[:120]})" if reason else ""
    return refuse(
        "yaml_invalid",
        f"The frontmatter of “{entry}” is no valid YAML in line {line}{because}: put the value of "
        "that field in double quotes.",
        entry,
        line,
    )


def _repaired(yaml_text: str) -> tuple[str, tuple[Repair, ...]]:
    """Quote top-level plain values that hold what YAML reads as structure: above all `: `.

    Continuation lines of such a value are folded into it, as YAML would.
    """
    out: list[str] = []
    repairs: list[Repair] = []
    lines = yaml_text.split("\n")
    at = 0
    while at < len(lines):
        end = at + 1
        match = _FIELD.fullmatch(lines[at])
        if match:
            while end < len(lines) and lines[end].startswith((" ", "\t")) and lines[end].strip():
                end += 1
        value = " ".join(line.strip() for line in [match[2], *lines[at + 1 : end]]) if match else ""
        if match and _needs_quotes(match[1], value):
            after = f"{match[1]}: {json.dumps(value, ensure_ascii=False)}"
            repairs.append(Repair(at + 2, "\n".join(lines[at:end]), after))
            out.append(after)
        else:
            out.extend(lines[at:end])
        at = end
    return "\n".join(out), tuple(repairs)


def _needs_quotes(field: str, value: str) -> bool:
    if value.startswith(_QUOTED_OR_BLOCK):
        return False
    if value.startswith(_RESERVED_START):
        return field in _PROSE_FIELDS
    return ": " in value or value.endswith(":") or ":\t" in value


class _Fields:
    """Builds JSON-ready values from nodes, refusing duplicate keys."""

    def __init__(self, entry: str) -> None:
        self._entry = entry

    def mapping(self, node: MappingNode) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 2
            if not isinstance(key, ScalarNode):
                raise _invalid(self._entry, line, "a field's name must be plain text")
            if key.value in result:
                raise refuse(
                    "yaml_duplicate_key",
                    f"“{self._entry}” has the field “{key.value[:80]}” twice, again in line {line}: "
                    "remove one.",
                    self._entry,
                    line,
                )
            result[key.value] = self._value(value)
        return result

    def _value(self, node: Node) -> Any:
        if isinstance(node, MappingNode):
            return self.mapping(node)
        if isinstance(node, SequenceNode):
            return [self._value(item) for item in node.value]
        return _scalar(str(node.tag).rpartition(":")[2], str(node.value))


def _scalar(kind: str, text: str) -> str | int | float | bool | None:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and text.lstrip("+-").isdecimal() and len(text) <= _MAX_INT_DIGITS:
        return int(text)
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            return text
        return number if math.isfinite(number) else text
    return text


def missing_field(head: Head, field: str, entry: str) -> Problem | None:
    """The rule that a required text field breaks, if any."""
    line = head.lines.get(field)
    value = head.frontmatter.get(field)
    if field not in head.frontmatter or value is None or value == "":
        return Problem(
            f"{field}_missing",
            f"“{entry}” has no {field}: add a line “{field}: …” to its frontmatter.",
            entry,
            line or 1,
        )
    if not isinstance(value, str):
        written = head.scalars.get(field)
        mend = f'“{field}: "{written[:40]}"”' if written else "a text in quotes"
        return Problem(
            f"{field}_not_string",
            f"The {field} in “{entry}” is not text: write {mend}.",
            entry,
            line,
        )
    if not value.strip():
        return Problem(
            f"{field}_missing", f"The {field} in “{entry}” is empty: write one.", entry, line
        )
    return None
