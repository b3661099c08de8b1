"""What a list may be filtered by: django-filter's filters, with the looks and limits of list pages.

A value that is none is ignored and named (`ListFilter.refused`), never an error page.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import reduce
from typing import Any

import django_filters
from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Model, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.fleet.models import Backend
from console.tenants.access import Principal
from console.tenants.models import Space
from console.web.requests import ConsoleRequest
from skills.models import SkillVersion

__all__ = [
    "BackendFilter",
    "ChoiceFilter",
    "ListFilter",
    "SearchFilter",
    "SetFilter",
    "SinceFilter",
    "SkillFilter",
    "SpaceFilter",
    "UntilFilter",
    "WholeNumberFilter",
    "backends_of",
]

Rows = QuerySet[Any]
_DAYS = [MinValueValidator(date(1970, 1, 1)), MaxValueValidator(date(9000, 1, 1))]


@dataclass(frozen=True, slots=True)
class SetFilter:
    """A filter that holds, in words."""

    name: str
    label: str
    value: str


class ListFilter(django_filters.FilterSet):
    """`at_hand` are shown at once, the others behind “More filters”."""

    at_hand: tuple[str, ...] = ("q", "state", "space")

    def __init__(self, rows: Rows, *, request: ConsoleRequest, space: Space | None = None) -> None:
        super().__init__(request.GET, queryset=rows, request=request)
        self.rows = rows
        if space is not None:
            self.filters.pop("space", None)

    def refused(self) -> list[SetFilter]:
        """What the URL says and no filter can hold."""
        return [
            SetFilter(name, self._label(name), str(self.form.data.get(name))[:60])
            for name in self.errors
        ]

    def held(self) -> list[SetFilter]:
        self.errors  # noqa: B018  cleans the form
        return [
            SetFilter(name, self._label(name), self._words(name, value))
            for name, value in self.form.cleaned_data.items()
            if value not in (None, "")
        ]

    def fields_at_hand(self) -> list[forms.BoundField]:
        return [self.form[name] for name in self.form.fields if name in self.at_hand]

    def more_fields(self) -> list[forms.BoundField]:
        return [self.form[name] for name in self.form.fields if name not in self.at_hand]

    def more_held(self) -> bool:
        """A filter behind “More filters” holds, so they had better be open."""
        return any(item.name not in self.at_hand for item in self.held())

    def _label(self, name: str) -> str:
        return str(self.form.fields[name].label)

    def _words(self, name: str, value: Any) -> str:
        field = self.form.fields[name]
        if isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField):
            return str(dict(self.filters[name].extra["choices"])[value])
        return str(value)


class SearchFilter(django_filters.CharFilter):
    """Text that one of the fields holds, in either case."""

    def __init__(self, *fields: str, label: Any) -> None:
        widget = forms.SearchInput(attrs={"placeholder": label})
        super().__init__(label=label, max_length=256, widget=widget)
        self.fields = fields

    def filter(self, qs: Rows, value: str) -> Rows:
        if not value:
            return qs
        return qs.filter(
            reduce(operator.or_, (Q(**{f"{name}__icontains": value}) for name in self.fields))
        )


class ChoiceFilter(django_filters.ChoiceFilter):
    """`any_label` is the choice that leaves everything in. A `method` takes what is no field's value."""

    def __init__(self, *, choices: Any, label: Any, any_label: Any, **extra: Any) -> None:
        super().__init__(choices=choices, label=label, empty_label=any_label, **extra)


class _DayFilter(django_filters.DateFilter):
    """Days are those of the reader's zone, as the times on pages are."""

    def __init__(self, *, field_name: str, label: Any) -> None:
        super().__init__(
            field_name=field_name,
            label=label,
            input_formats=["%Y-%m-%d"],
            widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
            validators=_DAYS,
        )


class SinceFilter(_DayFilter):
    def filter(self, qs: Rows, value: date | None) -> Rows:
        return qs.filter(**{f"{self.field_name}__gte": _midnight(value)}) if value else qs


class UntilFilter(_DayFilter):
    """The day itself is in."""

    def filter(self, qs: Rows, value: date | None) -> Rows:
        if value is None:
            return qs
        return qs.filter(**{f"{self.field_name}__lt": _midnight(value + timedelta(days=1))})


class WholeNumberFilter(django_filters.Filter):
    """From 1 on, as far as a column holds."""

    field_class = forms.IntegerField

    def __init__(self, *, field_name: str, label: Any) -> None:
        super().__init__(field_name=field_name, label=label, min_value=1, max_value=2**31 - 1)


class SpaceFilter(django_filters.ModelChoiceFilter):
    """Of the spaces that the reader may see; another's is no choice."""

    def __init__(self, **extra: Any) -> None:
        super().__init__(
            queryset=lambda request: request.principal.spaces(),  # type: ignore[arg-type]
            label=_("Space"),
            empty_label=_("Any space"),
            **extra,
        )


class BackendFilter(django_filters.ModelChoiceFilter):
    def __init__(self, **extra: Any) -> None:
        super().__init__(
            queryset=lambda request: backends_of(request.principal),  # type: ignore[arg-type]
            label=_("Backend"),
            empty_label=_("Any backend"),
            **extra,
        )


class SkillFilter(django_filters.CharFilter):
    """Rows with a skill of such a name. `items` is the model of their skills, `row_key` their key to the row."""

    def __init__(self, items: type[Model], row_key: str) -> None:
        super().__init__(label=_("Skill"), max_length=64)
        self.items = items
        self.row_key = row_key

    def filter(self, qs: Rows, value: str) -> Rows:
        if not value:
            return qs
        # From the few versions of that name to the rows, not from each row to its skills.
        versions = SkillVersion.objects.filter(skill__name__icontains=value)
        having = self.items._default_manager.filter(version__in=versions)
        return qs.filter(pk__in=having.values(self.row_key))


def backends_of(principal: Principal) -> QuerySet[Backend]:
    """Those that the spaces of a reader run on: their names stand in lists of sessions anyway."""
    return Backend.objects.filter(pk__in=principal.spaces().values("backend")).only("name")


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=timezone.get_current_timezone())
