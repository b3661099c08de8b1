"""How the API describes itself: one decorator a method, from which drf-spectacular makes OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import django_filters
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_field,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication

from console.api.errors import KINDS

__all__ = [
    "ApiSchema",
    "ErrorSerializer",
    "Media",
    "event_stream",
    "filters_of",
    "operation",
    "parameter",
]

F = TypeVar("F", bound=Callable[..., Any])
Body = type[serializers.BaseSerializer[Any]]

EVENTS = "text/event-stream"
OCTETS = "application/octet-stream"


class ErrorSerializer(serializers.Serializer[Any]):
    """What went wrong, and what to do about it."""

    code = serializers.IntegerField(help_text="WeKnora's integer for it.")
    kind = serializers.ChoiceField(
        choices=sorted(KINDS),
        help_text="Stable. Only `not_found` and `terminal` mean that a sandbox is gone.",
    )
    message = serializers.CharField(help_text="One sentence for a person, with the mend in it.")
    details = serializers.JSONField(
        allow_null=True, help_text="For programs: `fields`, `problems`, `entries` or null."
    )


@extend_schema_field({"type": "boolean", "enum": [True]})
class Succeeded(serializers.BooleanField):
    pass


@extend_schema_field({"type": "boolean", "enum": [False]})
class Failed(serializers.BooleanField):
    pass


@extend_schema_field({"type": "object", "maxProperties": 0})
class Nothing(serializers.DictField):
    pass


class FailureSerializer(serializers.Serializer[Any]):
    success = Failed()
    error = ErrorSerializer()


class Media(str):
    """A response that is no JSON: its media type."""


def event_stream(
    name: str, events: Mapping[str, Body | None], *, with_id: Sequence[str] = ()
) -> PolymorphicProxySerializer:
    """One event of a stream, as this version of OpenAPI can say it: an object of its name, its data as JSON
    (`{}` where that is None) and, for those in `with_id`, its id. Each is a component of its own, told apart
    by `event`."""
    described = {}
    for event, data in events.items():
        fields: dict[str, Any] = {"event": _constant(event)(), "data": (data or Nothing)()}
        if event in with_id:
            fields["id"] = serializers.CharField(help_text="Send it back as Last-Event-ID.")
        described[event] = inline_serializer(f"{name}{event.title()}Event", fields)
    return PolymorphicProxySerializer(
        component_name=f"{name}Event",
        serializers=cast(Any, described),
        resource_type_field_name="event",
    )


def _constant(word: str) -> Callable[[], serializers.ChoiceField]:
    @extend_schema_field({"type": "string", "enum": [word]})
    class Constant(serializers.ChoiceField):
        def __init__(self) -> None:
            super().__init__(choices=[word])

    return Constant


class KeyInHeader(BaseAuthentication):
    """Stands in the schema for `authentication.principal_of`, which is not DRF's."""


class _KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = KeyInHeader
    name = ["apiKey", "bearer", "browserSession"]

    def get_security_definition(self, auto_schema: AutoSchema) -> Any:
        return [
            {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            {"type": "http", "scheme": "bearer"},
            {"type": "apiKey", "in": "cookie", "name": "session"},
        ]


class ApiSchema(AutoSchema):
    def get_authenticators(self) -> list[BaseAuthentication]:
        return [KeyInHeader()]


def parameter(
    name: str,
    type_: Any = str,
    description: str = "",
    *,
    where: Literal["query", "path", "header", "cookie"] = "query",
    required: bool = False,
    enum: Sequence[Any] | None = None,
) -> OpenApiParameter:
    return OpenApiParameter(
        name, type_, where, required=required, description=description, enum=enum
    )


_FILTER_TYPES: dict[type, Any] = {
    django_filters.BooleanFilter: bool,
    django_filters.NumberFilter: int,
    django_filters.IsoDateTimeFilter: OpenApiTypes.DATETIME,
}


def filters_of(filters: type[django_filters.FilterSet]) -> list[OpenApiParameter]:
    """The query parameters of a FilterSet."""
    found = []
    for name, item in filters.base_filters.items():
        choices = [value for value, _ in item.extra.get("choices", ())] or None
        found.append(parameter(name, _FILTER_TYPES.get(type(item), str), enum=choices))
    return found


PAGING = [
    parameter("cursor", description="`next_cursor` of the page before."),
    parameter("limit", int, "How many at most, 1 to 200; 50 if not given."),
]
IDEMPOTENCY = parameter(
    "Idempotency-Key",
    description="The same request with the same key has one effect, for 24 hours.",
    where="header",
)


RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    int,
    "header",
    description="Come again after so many seconds.",
    response=[429, 503],
)


def _quota_fields(status: int) -> list[OpenApiParameter]:
    """After draft-ietf-httpapi-ratelimit-headers-10."""
    return [
        OpenApiParameter(
            "RateLimit-Policy",
            str,
            "header",
            description=(
                'The limits that hold, such as `"exec";q=500;w=10`: q at once, and again after w seconds; or '
                '`"running";q=1000;qu="concurrent-requests"`.'
            ),
            response=[status, 429],
        ),
        OpenApiParameter(
            "RateLimit",
            str,
            "header",
            description=(
                'What is left of them, such as `"exec";r=499;t=1`: r more, and one more after t seconds.'
            ),
            response=[status, 429],
        ),
    ]


def operation(
    operation_id: str,
    summary: str,
    *,
    tag: str,
    request: Any = None,
    response: Body | Media | None = None,
    status: int = 200,
    many: bool = False,
    listed: bool = False,
    events: PolymorphicProxySerializer | None = None,
    errors: Sequence[int] = (),
    parameters: Sequence[OpenApiParameter] = (),
    filters: type[django_filters.FilterSet] | None = None,
    description: str = "",
    also: Mapping[int, str] | None = None,
    idempotent: bool = False,
    limited: bool = False,
    path_errors: bool = True,
) -> Callable[[F], F]:
    """`limited` says that its answers tell of a rate limit. `many` is a page of `response`, `listed` all of them at once; `events` (of
    `event_stream`) says that it also comes as server-sent events; `also` has further answers without a
    body."""
    answers: dict[Any, Any] = dict(
        _success(operation_id, response, status, many=many, listed=listed, events=events)
    )
    for code, text in (also or {}).items():
        answers[code] = OpenApiResponse(description=text)
    common = {401, 405, 429, 500, 503} | ({403, 404} if path_errors else set())
    if request is not None:
        common |= {400, 413, 415, 422}
    for code in sorted(common | {400} | set(errors)):
        answers[code] = OpenApiResponse(FailureSerializer, description=_MEANING[code])
    if filters is not None:
        answers[422] = OpenApiResponse(FailureSerializer, description=_MEANING[422])
        parameters = [*filters_of(filters), *parameters]
    extra = [
        *(PAGING if many else ()),
        *((IDEMPOTENCY,) if idempotent else ()),
        *parameters,
        RETRY_AFTER,
        *(_quota_fields(status) if limited else ()),
    ]

    def described(method: F) -> F:
        if method.__name__ != "get" and 409 not in answers:
            # A repeated call that still runs, a space that is being deleted.
            answers[409] = OpenApiResponse(FailureSerializer, description=_MEANING[409])
        with_schema: F = extend_schema(
            operation_id=operation_id,
            summary=summary,
            description=description,
            tags=[tag],
            request=request,
            responses=answers,
            parameters=extra,
        )(method)
        return with_schema

    return described


def _success(
    operation_id: str,
    response: Body | Media | None,
    status: int,
    *,
    many: bool,
    listed: bool,
    events: PolymorphicProxySerializer | None,
) -> dict[Any, Any]:
    if isinstance(response, Media):
        return {(status, str(response)): OpenApiTypes.BINARY}
    if response is None and status == 204:
        return {204: OpenApiResponse(description="Done.")}
    fields: dict[str, Any] = {"success": Succeeded()}
    if response is None:
        fields["data"] = serializers.JSONField(allow_null=True)
    else:
        fields["data"] = response(many=True) if many or listed else response()
    if many:
        fields["next_cursor"] = serializers.CharField(allow_null=True)
    name = "".join(part.title() for part in operation_id.split("_"))
    envelope = inline_serializer(f"{name}Answer", fields)
    found: dict[Any, Any] = {(status, "application/json"): envelope}
    if events is not None:
        found[(status, EVENTS)] = events
    return found


_MEANING = {
    400: "The request can't be read: `invalid_request`.",
    401: "No good credentials: `unauthenticated`.",
    403: "Seen, but not allowed: `forbidden`.",
    404: "Not there, or another tenant's: `not_found`.",
    405: "`method_not_allowed`.",
    406: "`not_acceptable`.",
    409: "Busy, or in another state: `conflict`.",
    410: "The sandbox is gone for good: `terminal`.",
    412: "Changed meanwhile: `precondition_failed`.",
    413: "Larger than is taken: `too_large`.",
    415: "Another media type is needed: `unsupported_media_type`.",
    422: "Read, but not valid: `validation`, or `unsupported` by this backend.",
    428: "Send If-Match: `precondition_required`.",
    429: "Too often, or too much at once: `too_many_requests`, with Retry-After.",
    500: "A fault of the console: `internal`.",
    502: "The provider refused the backend's credentials: `authentication`.",
    503: "Try again later: `unavailable` or `capacity`, with Retry-After.",
    504: "No answer in time, the outcome is unknown: `timeout`.",
}
