"""API keys: list, make (the secret is shown once), revoke."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from console.tenants.access import PLATFORM, Action, Principal
from console.tenants.keys import KINDS, issue_key, revoke_key
from console.tenants.models import Space
from console.web.keys.lists import KEYS, visible_keys
from console.web.requests import ConsoleRequest
from sandboxes.errors import InvalidRequest

SCOPE_CHOICES = [
    (Action.VIEW.value, gettext_lazy("see everything but the audit log")),
    (Action.RUN.value, gettext_lazy("use sessions: run commands, read and write files, end them")),
    (Action.OPERATE.value, gettext_lazy("pause sessions, cancel builds, run as another account")),
    (Action.BUILD.value, gettext_lazy("install skills, build, roll back")),
    (Action.POLICY.value, gettext_lazy("edit the network policy")),
    (Action.CATALOG.value, gettext_lazy("upload skills and edit plans (whole tenant)")),
    (Action.MANAGE.value, gettext_lazy("backends, members, keys (whole tenant)")),
    (Action.AUDIT.value, gettext_lazy("read the audit log")),
]
LIFETIMES = {"30": 30, "90": 90, "365": 365, "": None}


class KeyForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("What will use it, such as “WeKnora production”."),
    )
    space = forms.ModelChoiceField(
        Space.objects.none(), required=False, label=gettext_lazy("Space")
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("May"),
        choices=SCOPE_CHOICES,
        initial=[Action.VIEW.value, Action.RUN.value],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy(
            "Give it no more than it needs; you can't give what you don't have."
        ),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Form"),
        choices=[
            ("sky", gettext_lazy("Skillyard (sky_…)")),
            ("e2b", gettext_lazy("For E2B clients (e2b_…)")),
        ],
        help_text=gettext_lazy("Both forms may do the same; some E2B clients accept only theirs."),
    )
    lifetime = forms.ChoiceField(
        label=gettext_lazy("Expires"),
        required=False,
        initial="365",
        choices=[
            ("30", gettext_lazy("in 30 days")),
            ("90", gettext_lazy("in 90 days")),
            ("365", gettext_lazy("in a year")),
            ("", gettext_lazy("never")),
        ],
        help_text=gettext_lazy("An expired key is refused; make the next one before."),
    )

    def __init__(self, data: Any, *, principal: Principal) -> None:
        super().__init__(data)
        if principal.everything:
            choices = [*SCOPE_CHOICES, (PLATFORM, _("everything, in every tenant: make tenants"))]
            self.fields["scopes"].choices = choices  # type: ignore[attr-defined]
        self.fields["space"] = forms.ModelChoiceField(
            principal.spaces(Action.MANAGE),
            required=False,
            label=_("Space"),
            empty_label=_("The whole tenant"),
            help_text=_("The key reaches this space only, or all of them."),
        )


def keys(request: ConsoleRequest) -> HttpResponseBase:
    principal = request.principal
    tenants = principal.tenants(Action.MANAGE)
    form = KeyForm(request.POST or None, principal=principal)
    secret = ""
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        space = data["space"]
        tenant_id = space.tenant_id if space else request.POST.get("tenant") or _first(tenants)
        tenant = principal.tenant(str(tenant_id), Action.MANAGE)
        days = LIFETIMES[data["lifetime"]]
        try:
            _key, secret = issue_key(
                principal=principal,
                tenant=tenant,
                space=space,
                name=data["name"],
                scopes=data["scopes"],
                kind=data["kind"] if data["kind"] in KINDS else "sky",
                expires_at=timezone.now() + timedelta(days=days) if days else None,
            )
        except InvalidRequest as error:
            form.add_error(None, error.message)
    return KEYS.respond(
        request,
        context={
            "form": KeyForm(None, principal=principal) if secret else form,
            "secret": secret,
            "tenants": tenants,
            "now": timezone.now(),
        },
        status=422 if form.errors else 200,
    )


def _first(tenants: QuerySet[Any]) -> str:
    return str(tenants.values_list("pk", flat=True).first())


@require_POST
def revoke(request: ConsoleRequest, key_id: str) -> HttpResponse:
    key = visible_keys(request.principal).filter(pk=key_id).first()
    if key is None:
        raise Http404
    revoke_key(principal=request.principal, key=key)
    messages.success(request, _("The key opens nothing any more."))
    return redirect("web:keys")
