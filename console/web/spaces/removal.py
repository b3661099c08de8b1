"""Deleting a space: what goes with it, its short name typed as a sign, and doing it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from console.fleet.removal import Consequences, RemovalUnconfirmed, request_removal, what_goes
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.requests import ConsoleRequest, page

__all__ = ["delete"]


class RemovalForm(forms.Form):
    """Asks only for what this space needs."""

    def __init__(self, data: QueryDict | None, *, space: Space, going: Consequences) -> None:
        super().__init__(data)
        self._slug = space.slug
        if not going.nothing:
            self.fields["confirm"] = forms.CharField(
                label=_("Type “%(slug)s” to delete it") % {"slug": space.slug},
                widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
            )
        if going.unreachable:
            self.fields["leave_snapshots"] = forms.BooleanField(
                label=_("Leave the snapshots that can't be reached where they are"),
                help_text=_("They go on costing what that account takes for them."),
            )

    def clean_confirm(self) -> str:
        typed = str(self.cleaned_data["confirm"]).strip()
        if typed != self._slug:
            raise forms.ValidationError(
                _("That is not the space's short name, which is “%(slug)s”."),
                params={"slug": self._slug},
            )
        return typed


def delete(request: ConsoleRequest, space_id: str) -> HttpResponse:
    row = request.principal.space(space_id, Action.VIEW)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    going = what_goes(row)
    form = RemovalForm(request.POST or None, space=row, going=going)
    if request.method == "POST" and form.is_valid():
        given: dict[str, Any] = form.cleaned_data
        try:
            request_removal(
                space=row,
                actor=request.principal.actor,
                confirm=given.get("confirm", ""),
                leave_snapshots=given.get("leave_snapshots", False),
            )
        except RemovalUnconfirmed as error:
            # Something began in it since the page was shown: look again.
            going = error.consequences
            form.add_error(None, error.message)
        else:
            messages.success(request, _("The space is being deleted; it may take a few minutes."))
            return redirect("web:spaces")
    return page(
        request,
        "spaces/delete.html",
        {"space": row, "going": going, "form": form},
        area="spaces",
        tab="settings",
        status=422 if form.errors else 200,
    )
