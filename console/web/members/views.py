"""Members of a tenant and their roles."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from console.tenants.access import Action, Principal
from console.tenants.members import add_member, change_role, remove_member
from console.tenants.models import Membership, Role, Space
from console.web.members.lists import MEMBERS
from console.web.requests import ConsoleRequest
from sandboxes.errors import Conflict, InvalidRequest


class MemberForm(forms.Form):
    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        help_text=gettext_lazy(
            "What they sign in with. Who has an account keeps it, and their password."
        ),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("For a new person; leave it empty for one who exists."),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=Role.choices,
        initial=Role.VIEWER,
        help_text=gettext_lazy(
            "Viewers look, operators use and destroy sessions, owners also build and edit the network "
            "policy, admins do everything, auditors read the audit log."
        ),
    )
    space = forms.ModelChoiceField(
        Space.objects.none(), required=False, label=gettext_lazy("Space")
    )

    def __init__(self, data: Any, *, principal: Principal) -> None:
        super().__init__(data)
        self.fields["space"] = forms.ModelChoiceField(
            Space.objects.filter(tenant__in=principal.tenants(Action.MANAGE)),
            required=False,
            label=_("Space"),
            empty_label=_("The whole tenant"),
            help_text=_("The role holds in this space only, or in all of them."),
        )


def members(request: ConsoleRequest) -> HttpResponseBase:
    principal = request.principal
    tenants = principal.tenants(Action.MANAGE)
    form = MemberForm(request.POST or None, principal=principal)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        space = data["space"]
        first = str(tenants.values_list("pk", flat=True).first())
        tenant_id = space.tenant_id if space else request.POST.get("tenant") or first
        tenant = principal.tenant(str(tenant_id), Action.MANAGE)
        try:
            add_member(principal=principal, tenant=tenant, **data)
        except (InvalidRequest, Conflict) as error:
            form.add_error(None, error.message)
        else:
            messages.success(request, _("“%(name)s” is in.") % {"name": data["username"]})
            return redirect("web:members")
    return MEMBERS.respond(
        request,
        context={"form": form, "tenants": tenants, "roles": Role.choices},
        status=422 if form.errors else 200,
    )


def _membership(request: ConsoleRequest, pk: int) -> Membership:
    row = (
        Membership.objects.filter(pk=pk, tenant__in=request.principal.tenants(Action.MANAGE))
        .select_related("user")
        .first()
    )
    if row is None:
        raise Http404
    return row


@require_POST
def change(request: ConsoleRequest, member_id: int) -> HttpResponse:
    row = _membership(request, member_id)
    change_role(principal=request.principal, membership=row, role=request.POST.get("role", ""))
    messages.success(request, _("The role is changed."))
    return redirect("web:members")


@require_POST
def remove(request: ConsoleRequest, member_id: int) -> HttpResponse:
    row = _membership(request, member_id)
    remove_member(principal=request.principal, membership=row)
    messages.success(request, _("“%(name)s” is out.") % {"name": row.user.get_username()})
    return redirect("web:members")
