"""One skill: upload, the safety report, the plan. The list is in `lists.py`."""

from __future__ import annotations

import contextlib
import json
from typing import Any, BinaryIO, cast

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from console.tenants.access import Action
from console.tenants.models import Tenant
from console.web.catalog.forms import PlanForm
from console.web.requests import ConsoleRequest, page
from skills.download import download
from skills.models import Skill, SkillVersion
from skills.package import PackageRefused, RootChoiceNeeded
from skills.package.opening import PackageSource
from skills.package.sources import UploadedFile as FolderFile
from skills.plan import Plan, PlanRefused, diff_plans
from skills.services import add_package, archive_skill, save_plan
from skills.uploads import keep_upload, open_upload


class MultipleFileInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class MultipleFileField(forms.FileField):
    def clean(self, data, initial=None):  # type: ignore[no-untyped-def]
        one = super().clean
        files = data if isinstance(data, list) else [data] if data else []
        return [one(item, initial) for item in files]


class UploadForm(forms.Form):
    """One of four: an archive, a folder, a URL, or a pasted SKILL.md. `kept` is an archive that was
    handed in before, for which `root` says which of its skills is meant."""

    archive = forms.FileField(
        label=gettext_lazy("Archive"),
        help_text=gettext_lazy("A .zip or .tar.gz with a SKILL.md; one wrapping folder is fine."),
        required=False,
    )
    folder = MultipleFileField(
        label=gettext_lazy("Folder"),
        help_text=gettext_lazy("Choose the skill's folder; it is sent file by file."),
        required=False,
        widget=MultipleFileInput(attrs={"webkitdirectory": True, "multiple": True}),
    )
    paths = forms.CharField(required=False, widget=forms.HiddenInput)
    url = forms.URLField(
        label=gettext_lazy("Address"),
        help_text=gettext_lazy("A direct https link to a .zip, .tar.gz or SKILL.md."),
        required=False,
        assume_scheme="https",
    )
    text = forms.CharField(
        label=gettext_lazy("Or paste a SKILL.md"),
        help_text=gettext_lazy("For a skill that is only this file, without scripts."),
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "code", "spellcheck": "false"}),
    )
    root = forms.CharField(required=False, widget=forms.HiddenInput)
    kept = forms.CharField(required=False, widget=forms.HiddenInput)

    def source(self, tenant_id: str) -> PackageSource:
        """What was handed in. Raises ValidationError unless it is exactly one thing."""
        data = self.cleaned_data
        if data["kept"]:
            return open_upload(tenant_id=tenant_id, token=data["kept"])
        given = [name for name in ("archive", "folder", "url", "text") if data[name]]
        if len(given) != 1:
            raise forms.ValidationError(
                _("Hand in one thing: an archive, a folder, an address or a pasted SKILL.md.")
            )
        if data["archive"]:
            return data["archive"].file  # type: ignore[no-any-return]
        if data["url"]:
            return async_to_sync(download)(data["url"])
        if data["text"]:
            return str(data["text"]).replace("\r\n", "\n")
        return self._folder_files(data["folder"], data["paths"])

    def _folder_files(self, files: list[UploadedFile[Any]], paths: str) -> list[FolderFile]:
        try:
            names = json.loads(paths)
        except ValueError:
            names = []
        if not isinstance(names, list) or len(names) != len(files):
            raise forms.ValidationError(
                _("A folder can only be sent from a browser with JavaScript; send a .zip instead.")
            )
        return [
            FolderFile(str(name), cast(BinaryIO, file.file))
            for name, file in zip(names, files, strict=True)
        ]


def upload(request: ConsoleRequest) -> HttpResponse:
    tenants = request.principal.tenants(Action.CATALOG)
    posted = request.method == "POST"
    form = UploadForm(request.POST, request.FILES) if posted else UploadForm()
    context: dict[str, Any] = {"form": form, "tenants": tenants}
    if posted and form.is_valid():
        tenant_id = request.POST.get("tenant") or tenants.values_list("pk", flat=True).first()
        tenant = request.principal.tenant(str(tenant_id), Action.CATALOG)
        version = _taken(request, tenant, form, context)
        if version is not None:
            messages.success(
                request,
                _("“%(name)s” is in the catalog. Look through what was found, then install it.")
                % {"name": version.skill.name},
            )
            return redirect("web:version", version.skill_id, version.number)
    return page(
        request, "catalog/upload.html", context, area="catalog", status=422 if posted else 200
    )


def _taken(
    request: ConsoleRequest, tenant: Tenant, form: UploadForm, context: dict[str, Any]
) -> SkillVersion | None:
    """The version that was handed in, or None with the reason in the form or the context."""
    with contextlib.ExitStack() as stack:
        try:
            source = form.source(tenant.pk)
            if hasattr(source, "close"):
                stack.callback(source.close)
            return add_package(
                tenant=tenant,
                source=source,
                actor=request.principal.actor,
                root=form.cleaned_data["root"] or None,
            )
        except forms.ValidationError as error:
            form.add_error(None, error)
        except RootChoiceNeeded as choice:
            context["candidates"] = choice.candidates
            context["kept"] = form.cleaned_data["kept"] or _keep(tenant.pk, source)
        except PackageRefused as refusal:
            context["problems"] = refusal.problems
    return None


def _keep(tenant_id: str, source: PackageSource) -> str:
    """The token of an archive that waits for the choice; a folder has to be handed in again."""
    if not hasattr(source, "read"):
        return ""
    return keep_upload(tenant_id=tenant_id, stream=cast(BinaryIO, source))


def _version(request: ConsoleRequest, skill_id: str, number: int | None = None) -> SkillVersion:
    skill = (
        Skill.objects.filter(tenant__in=request.principal.member_of(), pk=skill_id)
        .select_related("tenant")
        .first()
    )
    if skill is None:
        raise Http404
    versions = skill.versions.all()
    version = versions.filter(number=number).first() if number else versions.first()
    if version is None:
        raise Http404
    return version


def version(request: ConsoleRequest, skill_id: str, number: int | None = None) -> HttpResponse:
    """One version: what it is, what was found in it, and its plan."""
    row = _version(request, skill_id, number)
    skill = row.skill
    plan = row.current_plan
    return page(
        request,
        "catalog/version.html",
        {
            "skill": skill,
            "version": row,
            "versions": skill.versions.all(),
            "inspection": row.inspection,
            "plan": plan.plan(),
            "plan_number": plan.number,
            "spaces": request.principal.spaces(Action.BUILD).filter(tenant=skill.tenant),
            "may_edit": request.principal.may(Action.CATALOG, tenant_id=skill.tenant_id),
        },
        area="catalog",
    )


def plan_history(request: ConsoleRequest, skill_id: str, number: int) -> HttpResponse:
    """Every plan of a version, each with what it changed."""
    row = _version(request, skill_id, number)
    revisions = list(row.plans.select_related("created_by"))
    plans = [revision.plan() for revision in revisions]
    befores = [*plans[1:], Plan()]
    return page(
        request,
        "catalog/plans.html",
        {
            "skill": row.skill,
            "version": row,
            "plans": [
                (revision, diff_plans(before, after))
                for revision, before, after in zip(revisions, befores, plans, strict=True)
            ],
        },
        area="catalog",
    )


def edit_plan(request: ConsoleRequest, skill_id: str, number: int) -> HttpResponse:
    row = _version(request, skill_id, number)
    request.principal.require(Action.CATALOG, tenant_id=row.skill.tenant_id)
    present = row.current_plan
    form = PlanForm(request.POST or None, plan=present.plan())
    if request.method == "POST":
        try:
            saved = save_plan(version=row, plan=form.edited(), actor=request.principal.actor)
        except PlanRefused as refusal:
            form.problems = refusal.problems
        else:
            messages.success(request, _("Plan %(number)d is saved.") % {"number": saved.number})
            return redirect("web:version", row.skill_id, row.number)
    return page(
        request,
        "catalog/plan.html",
        {
            "skill": row.skill,
            "version": row,
            "form": form,
            "number": present.number,
            "cancel": reverse("web:version", args=[row.skill_id, row.number]),
        },
        area="catalog",
        status=422 if form.problems else 200,
    )


@require_POST
def archive(request: ConsoleRequest, skill_id: str) -> HttpResponse:
    row = _version(request, skill_id)
    request.principal.require(Action.CATALOG, tenant_id=row.skill.tenant_id)
    archive_skill(skill=row.skill, actor=request.principal.actor)
    messages.success(
        request,
        _(
            "“%(name)s” is out of the catalog; releases that carry it keep it. Upload it again to bring it back."
        )
        % {"name": row.skill.name},
    )
    return redirect("web:catalog")
