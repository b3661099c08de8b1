"""Lists: a page at a time, newest first, by a cursor that stays right while rows come and go."""

from __future__ import annotations

import base64
from typing import Any

import django_filters
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from console.api.errors import ApiError
from console.api.views import answer

__all__ = ["filtered", "flag", "page_of"]

DEFAULT_LIMIT = 50
MAX_LIMIT = 200


def page_of(
    request: HttpRequest,
    rows: QuerySet[Any, Any],
    serializer: type[serializers.BaseSerializer[Any]],
) -> HttpResponse:
    """One page by primary key, which sorts by time. ApiError for a bad `cursor` or `limit`."""
    limit = _limit(request)
    rows = rows.order_by("-pk")
    if cursor := request.GET.get("cursor"):
        rows = rows.filter(pk__lt=_decode(cursor, rows.model))
    found = list(rows[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    data = serializer(found, many=True).data
    return answer(data, next_cursor=_encode(found[-1].pk) if more else None)


def filtered(
    filters: type[django_filters.FilterSet], request: HttpRequest, rows: QuerySet[Any, Any]
) -> QuerySet[Any, Any]:
    """The rows that the query asks for; ApiError `validation` for a filter's bad value."""
    asked = filters(request.GET, queryset=rows)
    if not asked.is_valid():
        raise ValidationError({name: list(errors) for name, errors in asked.errors.items()})
    found: QuerySet[Any, Any] = asked.qs
    return found


def flag(request: HttpRequest, name: str) -> bool:
    """A query parameter that is `true` or `false`; false if it is not there."""
    text = request.GET.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise ApiError("invalid_request", f"{name} takes true or false.")
    return text in ("true", "1")


def _limit(request: HttpRequest) -> int:
    text = request.GET.get("limit", str(DEFAULT_LIMIT))
    if text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise ApiError("invalid_request", f"limit takes a number from 1 to {MAX_LIMIT}.")


def _encode(pk: Any) -> str:
    return base64.urlsafe_b64encode(str(pk).encode()).decode().rstrip("=")


def _decode(cursor: str, model: type[Model]) -> Any:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        if not text or "\0" in text:
            raise ValueError
        return model._meta.pk.to_python(text)
    except (ValueError, TypeError, ValidationError) as error:
        raise ApiError(
            "invalid_request", "This cursor is not one of ours; start without one."
        ) from error
