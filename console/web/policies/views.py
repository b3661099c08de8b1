"""The network policy of a space: edit with a preview, apply, history, restore, export and import.

Every button of the editor posts the whole form and names what it wants; scripts only save the
page from being loaded for it.
"""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.fleet.policies import apply_now
from console.fleet.runtime import shared_runtime
from console.policies.changes import merge
from console.policies.drafts import Draft
from console.policies.exchange import MAX_BYTES, dump, load
from console.policies.models import NetworkPolicyRevision
from console.policies.presets import PRESETS
from console.policies.services import current_policy, save_policy
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.policies.editor import (
    Form,
    Preview,
    around,
    edited_revision,
    editor,
    small_number,
)
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import Conflict, InvalidRequest


def network(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """See the policy, and edit it where that is allowed."""
    space = request.principal.space(space_id, Action.VIEW)
    present = current_policy(space)
    if request.method != "POST":
        return show(request, space, present, _first_form(request, space, present))
    request.principal.require(Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk)
    form = Form.posted(request.POST)
    if "save" in request.POST or "over" in request.POST:
        return _save(request, space, present, form)
    if request.htmx and request.htmx.target == "preview":
        return page(request, "policies/live.html", editor(space, present, form), area="spaces")
    return show(request, space, present, _next_form(request, space, present, form))


def show(
    request: ConsoleRequest,
    space: Space,
    present: NetworkPolicyRevision,
    form: Form,
    *,
    status: int = 200,
    extra: dict[str, Any] | None = None,
) -> HttpResponse:
    """The whole page, or for a button of the form only that."""
    context = editor(space, present, form) | {
        "may_edit": request.principal.may(
            Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk
        ),
        **(extra or {}),
    }
    if request.htmx and request.htmx.target == "policy":
        return page(request, "policies/form.html", context, area="spaces", status=status)
    context |= around(space, request.GET.get("page"))
    context["sees_backend"] = request.principal.may(Action.VIEW, tenant_id=space.tenant_id)
    return page(
        request, "policies/network.html", context, area="spaces", tab="network", status=status
    )


def _first_form(request: ConsoleRequest, space: Space, present: NetworkPolicyRevision) -> Form:
    """The present policy, or an older one to restore."""
    restore = small_number(request.GET.get("restore", ""))
    form = Form.of(Draft.of(present.policy()), number=present.number)
    if restore is not None:
        old = space.policy_revisions.filter(number=restore).first()
        if old is None:
            raise Http404
        reason = _("Restore revision %(number)d") % {"number": old.number}
        form = Form.of(Draft.of(old.policy()), number=present.number, reason=reason)
    form.spread()
    return form


def _next_form(
    request: ConsoleRequest, space: Space, present: NetworkPolicyRevision, form: Form
) -> Form:
    """What the form is after one of its buttons; without any, the same, one entry a row."""
    data = request.POST
    if (name := data.get("add-row")) is not None:
        form.add_row(name)
        return form
    if (which := data.get("remove-row")) is not None:
        form.remove_row(which)
    elif preset := PRESETS.get(data.get("preset", "")):
        draft = preset.draft(inbound=form.inbound)
        form = Form.of(draft, number=form.number, reason=form.reason)
    elif "merge" in data:
        base = edited_revision(space, present, form.number)
        merged = merge(
            base=Draft.of(base.policy()), theirs=Draft.of(present.policy()), mine=form.draft()
        )
        form = Form.of(merged, number=present.number, reason=form.reason)
        form.focus = "preview"
    form.spread()
    return form


def _save(
    request: ConsoleRequest, space: Space, present: NetworkPolicyRevision, form: Form
) -> HttpResponse:
    """Save it, over another's change only if that very revision was named."""
    over = small_number(request.POST.get("over", ""))
    preview: Preview = editor(space, present, form)["preview"]
    if preview.bad or preview.unenforceable:
        form.spread()
        return show(request, space, present, form, status=422)
    try:
        saved = save_policy(
            space=space,
            policy=form.draft().policy(),
            actor=request.principal.actor,
            reason=form.reason,
            expected_number=form.number if over is None else over,
        )
    except Conflict:
        form.spread()
        return show(request, space, current_policy(space), form, status=409)
    if saved.number == present.number:
        messages.info(request, _("The policy is the same as before; nothing was saved."))
    else:
        messages.success(
            request,
            _(
                "Revision %(number)d holds for every new sandbox. Apply it now to reach running ones."
            )
            % {"number": saved.number},
        )
    return redirect("web:network", space.pk)


@require_POST
async def apply(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = await sync_to_async(request.principal.space)(space_id, Action.POLICY)
    revision = await sync_to_async(current_policy)(space)
    report = await apply_now(
        runtime=shared_runtime(), space=space, revision=revision, actor=request.principal.actor
    )
    text = _("%(updated)d sessions were updated in place, %(stale)d follow at their next turn.") % {
        "updated": report.updated,
        "stale": report.stale,
    }
    await sync_to_async(messages.success)(request, text)
    for session_id, why in report.failed[:5]:
        await sync_to_async(messages.error)(request, f"{session_id}: {why}")
    return redirect("web:network", space.pk)


@require_GET
def export(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.VIEW)
    revision = current_policy(space)
    response = HttpResponse(dump(revision.policy()), content_type="application/json")
    name = f"{space.slug}-network-{revision.number}.json"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_POST
def take(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """A policy from a file or from pasted text, shown in the editor with what it would change."""
    space = request.principal.space(space_id, Action.POLICY)
    present = current_policy(space)
    text = request.POST.get("text", "")
    file = request.FILES.get("file")
    try:
        if file is not None:
            draft = load(file.read(MAX_BYTES + 1))
        elif text.strip():
            draft = load(text)
        else:
            raise InvalidRequest(_("Choose a file, or paste the JSON of a policy."))
    except InvalidRequest as refused:
        form = _first_form(request, space, present)
        extra = {"import_problem": refused.message, "import_text": text}
        return show(request, space, present, form, status=422, extra=extra)
    name = _("Imported from %(file)s") % {"file": file.name} if file else _("Imported")
    form = Form.of(draft, number=present.number, reason=name[:300])
    form.spread()
    return show(request, space, present, form, extra={"imported": True})
