"""A new space, and the tabs of one. The list is in `lists.py`."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.fleet.models import Backend
from console.fleet.services import create_space, update_space
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import InvalidRequest
from skills.models import Skill


class SpaceForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Space
        fields = ("name", "slug", "description", "backend", "base_template")
        labels = {
            "name": gettext_lazy("Name"),
            "slug": gettext_lazy("Short name"),
            "description": gettext_lazy("Description"),
            "base_template": gettext_lazy("Base template"),
        }
        help_texts = {
            "name": gettext_lazy("As people call it; it can change later."),
            "slug": gettext_lazy("For addresses and the API: lower-case letters, digits, hyphens."),
            "description": gettext_lazy("What it is for, in one line."),
            "base_template": gettext_lazy("What sandboxes start from before the first release."),
        }

    def __init__(self, data: QueryDict | None, *, backends: QuerySet[Backend]) -> None:
        super().__init__(data)
        self.fields["backend"] = forms.ModelChoiceField(
            backends, label=_("Backend"), help_text=_("Where this space's sandboxes run.")
        )


def new_space(request: ConsoleRequest) -> HttpResponse:
    backends = Backend.objects.filter(tenant__in=request.principal.tenants(Action.MANAGE))
    form = SpaceForm(request.POST or None, backends=backends)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        tenant = request.principal.tenant(data["backend"].tenant_id, Action.MANAGE)
        try:
            space = create_space(tenant=tenant, actor=request.principal.actor, **data)
        except (InvalidRequest, ValidationError) as error:
            form.add_error(None, str(error) if isinstance(error, InvalidRequest) else error)
        else:
            messages.success(request, _("The space is made. Install skills in it now."))
            return redirect("web:space-skills", space.pk)
    return page(
        request,
        "form_page.html",
        {
            "form": form,
            "title": _("New space"),
            "lead": _("A space has its own skills, releases, network policy and sessions."),
            "submit": _("Make the space"),
            "cancel": reverse("web:spaces"),
        },
        area="spaces",
        status=422 if form.errors else 200,
    )


def skills(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """The skills of a space: what its release carries, and what could be added."""
    row = request.principal.space(space_id, Action.VIEW)
    release = row.current_release
    items = (
        list(
            release.items.select_related("version__skill").prefetch_related(
                "version__skill__versions"
            )
        )
        if release
        else []
    )
    installed = {item.version.skill_id for item in items}
    return page(
        request,
        "spaces/skills.html",
        {
            "space": row,
            "release": release,
            "release_usable": release.usable_on(row.backend) if release else True,
            "items": items,
            "available": Skill.objects.filter(tenant=row.tenant, archived_at=None)
            .exclude(pk__in=installed)
            .prefetch_related("versions"),
            "builds": row.builds.unfinished(),
            "may_build": request.principal.may(
                Action.BUILD, tenant_id=row.tenant_id, space_id=row.pk
            ),
            "may_run": request.principal.may(Action.RUN, tenant_id=row.tenant_id, space_id=row.pk),
        },
        area="spaces",
        tab="skills",
    )


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    env = forms.CharField(
        label=gettext_lazy("Environment"),
        required=False,
        help_text=gettext_lazy("NAME=value, one a line; seen by every command. Never secrets."),
        widget=forms.Textarea(attrs={"rows": 5, "class": "code", "spellcheck": "false"}),
    )

    class Meta:
        model = Space
        fields = ("name", "description", "base_template", "rollout", "idle_timeout_s", "env")
        labels = {
            "name": gettext_lazy("Name"),
            "description": gettext_lazy("Description"),
            "base_template": gettext_lazy("Base template"),
            "rollout": gettext_lazy("Running sessions move to a new release or policy"),
            "idle_timeout_s": gettext_lazy("Idle time until a sandbox is paused, in seconds"),
        }
        help_texts = {
            "name": gettext_lazy("As people call it; addresses and the API use the short name."),
            "description": gettext_lazy("What it is for, in one line."),
            "base_template": gettext_lazy(
                "What sandboxes start from before the first release, and clean builds always."
            ),
            "rollout": gettext_lazy(
                "Never in the middle of a turn. The move gives a session a new sandbox: attachments come "
                "back, other files don't."
            ),
            "idle_timeout_s": gettext_lazy(
                "A paused sandbox costs little and wakes by itself; where the backend can't pause, it is "
                "rebuilt at its next use."
            ),
        }

    def clean_env(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.cleaned_data["env"].splitlines():
            name, equals, value = line.strip().partition("=")
            if not name and not equals:
                continue
            if not equals or not name.isidentifier() or name.startswith("WEKNORA_"):
                raise ValidationError(
                    _("“%(line)s” is no NAME=value, or the name is reserved."),
                    params={"line": line.strip()[:60]},
                )
            found[name] = value
        return found


def edit_space(request: ConsoleRequest, space_id: str) -> HttpResponse:
    row = request.principal.space(space_id, Action.BUILD)
    lines = "\n".join(f"{name}={value}" for name, value in row.env.items())
    form = SettingsForm(request.POST or None, instance=row, initial={"env": lines})
    if request.method == "POST" and form.is_valid():
        update_space(space=form.save(commit=False), actor=request.principal.actor)
        messages.success(request, _("The settings are saved; new sandboxes follow them."))
        return redirect("web:space-settings", row.pk)
    return page(
        request,
        "spaces/settings.html",
        {
            "space": request.principal.space(space_id, Action.VIEW),
            "form": form,
            "may_delete": request.principal.may(Action.MANAGE, tenant_id=row.tenant_id),
        },
        area="spaces",
        tab="settings",
        status=422 if form.errors else 200,
    )
