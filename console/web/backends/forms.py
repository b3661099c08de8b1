"""The form of a backend, made from what its provider says of its settings."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _

from console.fleet.connection import Field, fields_of
from console.fleet.models import Backend
from console.fleet.prices import checked_price
from sandboxes.errors import InvalidRequest

__all__ = ["BackendForm"]

_CLEAR = "clear-"


class BackendForm(forms.Form):
    """Secrets are never shown: an empty one keeps what is stored, a tick takes it away."""

    name = forms.CharField(max_length=100)

    def __init__(
        self, data: QueryDict | None, *, provider: str, backend: Backend | None = None
    ) -> None:
        initial: dict[str, Any] = {}
        if backend is not None:
            initial = {
                "name": backend.name,
                "hourly_cost": backend.hourly_cost,
                "currency": backend.currency,
                **backend.settings,
            }
        super().__init__(data, initial=initial)
        self._stored = backend.secrets if backend is not None else {}
        self._settings = fields_of(provider)
        self.fields["name"].label = _("Name")
        self.fields["name"].help_text = _("As people call it; it can change later.")
        for field in self._settings:
            self.fields[field.name] = self._field(field)
            if field.secret and self._stored.get(field.name) and not field.required:
                label = _("Remove the stored %(what)s") % {"what": field.label}
                self.fields[_CLEAR + field.name] = forms.BooleanField(required=False, label=label)

        self.fields["hourly_cost"] = forms.DecimalField(
            label=_("What one sandbox costs an hour"),
            help_text=_("For estimates of what idle sandboxes cost; paused ones count in full."),
            required=False,
            min_value=Decimal(0),
            max_digits=10,
            decimal_places=4,
        )
        self.fields["currency"] = forms.CharField(
            label=_("Currency"),
            help_text=_("Three letters, such as USD or CNY."),
            required=False,
            max_length=3,
        )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        try:
            checked_price(data.get("hourly_cost"), data.get("currency", ""))
        except InvalidRequest as error:
            self.add_error("currency", error.message)
        return data

    def _field(self, field: Field) -> forms.Field:
        label, help_text = _(field.label), _(field.help) if field.help else ""
        if field.kind is bool:
            return forms.BooleanField(
                required=False, label=label, help_text=help_text, initial=field.default
            )
        if field.kind in (int, float):
            return forms.FloatField(
                required=field.required,
                label=label,
                help_text=help_text,
                initial=field.default,
                min_value=field.minimum,
            )
        if field.secret:
            return self._secret(field, label, help_text)
        widget = forms.Textarea(attrs={"rows": 4, "class": "code"}) if field.multiline else None
        return forms.CharField(
            required=field.required,
            label=label,
            help_text=help_text,
            widget=widget,
            initial=field.default or "",
        )

    def _secret(self, field: Field, label: str, help_text: str) -> forms.Field:
        stored = bool(self._stored.get(field.name))
        if stored:
            help_text = _("It is set and not shown. Leave empty to keep it.")
        return forms.CharField(
            required=field.required and not stored,
            label=label,
            help_text=help_text,
            strip=True,
            widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        )

    def values(self) -> dict[str, Any]:
        """What the settings are to be, as `console.fleet.connection.read` takes it."""
        found: dict[str, Any] = {}
        for field in self._settings:
            value = self.cleaned_data.get(field.name)
            if field.secret and self.cleaned_data.get(_CLEAR + field.name):
                value = None
            elif value is None:
                value = field.default
            found[field.name] = value
        return found
