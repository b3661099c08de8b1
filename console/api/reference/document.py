"""The OpenAPI document, and the same as rows for a page. Made once a process: routes don't change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

__all__ = ["Operation", "Row", "document", "operations", "rendered"]

METHODS = ("get", "post", "put", "patch", "delete")
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A parameter or a field; `name` is its path, such as `data[].id`."""

    name: str
    kind: str
    required: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    method: str
    path: str
    tag: str
    summary: str
    text: str
    parameters: list[Row]
    bodies: list[tuple[str, list[Row]]]
    """Of the request: (media type, fields)."""
    answers: list[tuple[str, str, list[Row]]]
    """(status, media types, fields) of what is no error."""
    refusals: list[tuple[str, str]] = field(default_factory=list)
    """(status, meaning)."""
    example: str = ""


@cache
def document() -> dict[str, Any]:
    schema: dict[str, Any] = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return schema


@cache
def rendered(kind: str) -> bytes:
    """As `json` or `yaml`."""
    renderer = OpenApiYamlRenderer() if kind == "yaml" else OpenApiJsonRenderer()
    body: bytes = renderer.render(document(), renderer_context={})
    return body


@cache
def operations() -> dict[str, list[Operation]]:
    """By tag, in the order of the routes."""
    found: dict[str, list[Operation]] = {}
    for path, methods in document()["paths"].items():
        for method in METHODS:
            if method in methods:
                item = _operation(path, method, methods[method])
                found.setdefault(item.tag, []).append(item)
    return found


def _operation(path: str, method: str, data: dict[str, Any]) -> Operation:
    answers, refusals = [], []
    for status, answer in data["responses"].items():
        if status >= "400":
            refusals.append((status, _plain(answer.get("description", ""))))
            continue
        content = answer.get("content", {})
        rows: list[Row] = []
        for media in content.values():
            rows += _rows(media.get("schema", {}))
        answers.append((status, ", ".join(content) or answer.get("description", ""), rows))
    bodies = [
        (media, list(_rows(value.get("schema", {}))))
        for media, value in data.get("requestBody", {}).get("content", {}).items()
    ]
    return Operation(
        id=data["operationId"],
        method=method.upper(),
        path=path,
        tag=data["tags"][0],
        summary=data.get("summary", ""),
        text=_plain(data.get("description", "")),
        parameters=[_parameter(item) for item in data.get("parameters", ())],
        bodies=bodies,
        answers=answers,
        refusals=refusals,
        example=_example(path, method, data),
    )


def _plain(text: str) -> str:
    return text.replace("`", "")


def _parameter(item: dict[str, Any]) -> Row:
    return Row(
        name=f"{item['name']} ({item['in']})",
        kind=_kind(item.get("schema", {})),
        required=item.get("required", False),
        text=_plain(item.get("description", "")),
    )


def _rows(schema: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[Row]:
    schema = _resolved(schema)
    if "discriminator" in schema:
        yield from _event_rows(schema["discriminator"]["mapping"])
        return
    if schema.get("type") == "array":
        yield from _rows(schema["items"], f"{prefix}[]", depth)
        return
    required = set(schema.get("required", ()))
    for name, value in schema.get("properties", {}).items():
        if name == "success":
            continue
        full = f"{prefix}.{name}".lstrip(".")
        inner = _resolved(value)
        yield Row(
            name=full,
            kind=_kind(value),
            required=name in required,
            text=_plain(value.get("description") or inner.get("description", "")),
        )
        if depth < _DEEPEST:
            yield from _rows(value, full, depth + 1)


def _event_rows(events: dict[str, str]) -> Iterator[Row]:
    """Of a stream: each event, then the fields of its data."""
    for name, reference in events.items():
        fields = _resolved({"$ref": reference})["properties"]
        yield Row(name=f"event {name}", kind="event", required=False, text="")
        yield from _rows(fields["data"], f"{name}.data", 1)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "discriminator" in schema:
        return schema
    for choice in schema.get("allOf", ()) or schema.get("oneOf", ()):
        if "$ref" in choice:
            schema = choice
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = document()["components"]["schemas"][name]
    return found


def _kind(schema: dict[str, Any]) -> str:
    nullable = " or null" if schema.get("nullable") else ""
    schema = _resolved(schema)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"]) + nullable
    kind = str(schema.get("format") or schema.get("type", "any"))
    if kind == "array":
        kind = f"list of {_kind(schema['items'])}"
    return kind + nullable


def _example(path: str, method: str, data: dict[str, Any]) -> str:
    lines = ['curl -H "X-API-Key: $KEY"']
    if method != "get":
        lines.append(f"-X {method.upper()}")
    media = next(iter(data.get("requestBody", {}).get("content", {})), "")
    if media == "application/json":
        lines.append("-H 'Content-Type: application/json' -d '{…}'")
    elif media.startswith("multipart/"):
        name = next(iter(data["requestBody"]["content"][media]["schema"]["properties"]))
        lines.append(f"-F {name}=@FILE")
    elif media:
        lines.append("--data-binary @FILE")
    return " ".join([*lines, f'"$URL{path}"'])
