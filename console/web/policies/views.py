"""The network policy of a space: edit with a preview, test a host, apply, history, restore."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from console.fleet.models import SessionState
from console.fleet.policies import apply_now, drifted_sessions, try_host
from console.fleet.runtime import shared_runtime
from console.policies.hosts import judge
from console.policies.models import NetworkPolicyRevision
from console.policies.services import current_policy, save_policy
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.requests import ConsoleRequest, page
from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.network import NetworkPolicy, PolicyInvalid
from sandboxes.network_advice import advice, limits

PRESETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "open": (gettext_lazy("Open"), {"outbound": True, "allow": [], "deny": []}),
    "registries": (
        gettext_lazy("Registries only"),
        {
            "outbound": False,
            "allow": [
                "pypi.org",
                "files.pythonhosted.org",
                "registry.npmjs.org",
                "deb.debian.org",
                "security.debian.org",
            ],
            "deny": [],
        },
    ),
    "closed": (gettext_lazy("Closed"), {"outbound": False, "allow": [], "deny": []}),
}


class PolicyForm(forms.Form):
    """One entry a line. `policy()` is the parsed value, or None with every problem in `problems`."""

    outbound = forms.BooleanField(required=False, label=gettext_lazy("Outbound is open"))
    inbound = forms.BooleanField(required=False, label=gettext_lazy("Inbound is open"))
    allow = forms.CharField(
        required=False,
        label=gettext_lazy("Allow"),
        help_text=gettext_lazy(
            "One a line: an IPv4 address, a CIDR block, a domain, or *.domain for its subdomains."
        ),
        widget=forms.Textarea(attrs={"rows": 8, "class": "code", "spellcheck": "false"}),
    )
    deny = forms.CharField(
        required=False,
        label=gettext_lazy("Deny"),
        help_text=gettext_lazy("One a line: an IPv4 address or a CIDR block. Allow beats deny."),
        widget=forms.Textarea(attrs={"rows": 8, "class": "code", "spellcheck": "false"}),
    )
    reason = forms.CharField(
        required=False, max_length=300, label=gettext_lazy("Why, for the history")
    )
    number = forms.IntegerField(widget=forms.HiddenInput)

    def policy(self) -> NetworkPolicy:
        """Raises PolicyInvalid."""
        data = self.cleaned_data
        return NetworkPolicy.parse(
            outbound=data["outbound"],
            inbound=data["inbound"],
            allow=_lines(data["allow"]),
            deny=_lines(data["deny"]),
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """What saving would change, what it does not do, and whom it concerns."""

    changes: list[tuple[str, str]]
    advice: list[str]
    limits: list[str]
    sessions: int


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _initial(policy: NetworkPolicy, number: int) -> dict[str, Any]:
    return {
        "outbound": policy.outbound,
        "inbound": policy.inbound,
        "allow": "\n".join(policy.allow),
        "deny": "\n".join(policy.deny),
        "number": number,
    }


def _preview(space: Space, present: NetworkPolicyRevision, wanted: NetworkPolicy) -> Preview:
    before = present.policy()
    changes = []
    for name, label in (("outbound", _("outbound")), ("inbound", _("inbound"))):
        if getattr(before, name) != getattr(wanted, name):
            state = _("open") if getattr(wanted, name) else _("closed")
            changes.append(("±", f"{label}: {state}"))
    for name, label in (("allow", _("allow")), ("deny", _("deny"))):
        old, new = set(getattr(before, name)), set(getattr(wanted, name))
        changes += [("-", f"{label} {entry}") for entry in sorted(old - new)]
        changes += [("+", f"{label} {entry}") for entry in sorted(new - old)]
    known = space.backend.capabilities
    unable = limits(wanted, Capabilities(**known)) if known else []
    return Preview(
        changes=changes,
        advice=[item.sentence for item in advice(wanted)],
        limits=unable,
        sessions=drifted_sessions(space, present).count() if not changes else _live(space),
    )


def _live(space: Space) -> int:
    return space.sessions.filter(state__in=[SessionState.ACTIVE, SessionState.PAUSED]).count()


def network(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """See the policy, and edit it where that is allowed. A POST saves; `preview` only looks."""
    space = request.principal.space(space_id, Action.VIEW)
    present = current_policy(space)
    context: dict[str, Any] = {
        "space": space,
        "revision": present,
        "presets": [(key, label) for key, (label, _values) in PRESETS.items()],
        "history": space.policy_revisions.select_related("created_by")[:20],
        "drifted": drifted_sessions(space, present).count(),
        "may_edit": request.principal.may(
            Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk
        ),
    }
    status = 200
    if request.method == "POST":
        request.principal.require(Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk)
        form = PolicyForm(request.POST)
        try:
            if form.is_valid() and _submitted(request, space, form, context, present):
                return redirect("web:network", space.pk)
        except PolicyInvalid as invalid:
            context["problems"] = invalid.errors
        except Conflict as conflict:
            context["conflict"] = conflict.message
        status = 200 if "preview" in request.POST else 422
    else:
        form = PolicyForm(initial=_wanted(request, space, present))
    context["form"] = form
    return page(
        request,
        "policies/network.html",
        context,
        area="spaces",
        tab="network",
        partial="preview",
        status=status,
    )


def _wanted(
    request: ConsoleRequest, space: Space, present: NetworkPolicyRevision
) -> dict[str, Any]:
    """What the form starts with: the present policy, a preset, or an older revision."""
    preset = PRESETS.get(request.GET.get("preset", ""))
    initial = _initial(present.policy(), present.number)
    if preset:
        values = preset[1]
        return initial | {
            "outbound": values["outbound"],
            "allow": "\n".join(values["allow"]),
            "deny": "\n".join(values["deny"]),
        }
    restore = request.GET.get("restore", "")
    if restore.isdigit():
        old = space.policy_revisions.filter(number=int(restore)).first()
        if old is None:
            raise Http404
        reason = _("Restore revision %(number)d") % {"number": old.number}
        return _initial(old.policy(), present.number) | {"reason": reason}
    return initial


def _submitted(
    request: ConsoleRequest,
    space: Space,
    form: PolicyForm,
    context: dict[str, Any],
    present: NetworkPolicyRevision,
) -> bool:
    """True if it was saved; otherwise the preview is in the context."""
    wanted = form.policy()
    context["preview"] = preview = _preview(space, present, wanted)
    if "preview" in request.POST or preview.limits:
        return False
    saved = save_policy(
        space=space,
        policy=wanted,
        actor=request.principal.actor,
        reason=form.cleaned_data["reason"],
        expected_number=form.cleaned_data["number"],
    )
    messages.success(
        request,
        _("Revision %(number)d holds for every new sandbox. Apply it now to reach running ones.")
        % {"number": saved.number},
    )
    return True


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


@require_POST
async def test_host(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """Would a sandbox reach this host under the policy in the form? Optionally tried for real."""
    space = await sync_to_async(request.principal.space)(space_id, Action.VIEW)
    form = PolicyForm(request.POST)
    text = request.POST.get("host", "").strip()
    context: dict[str, Any] = {"host": text}
    try:
        form.full_clean()
        policy = form.policy()
        context["test"] = await sync_to_async(judge, thread_sensitive=False)(policy, text)
    except InvalidRequest as error:
        context["problem"] = error.message
    else:
        if "really" in request.POST:
            await sync_to_async(request.principal.require)(
                Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk
            )
            context["trial"] = await try_host(
                runtime=shared_runtime(),
                space=space,
                policy=policy,
                url=text if "://" in text else f"http://{text}",
            )
    return await sync_to_async(page)(request, "policies/host_test.html", context, area="spaces")


@require_GET
def export(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.VIEW)
    revision = current_policy(space)
    body = {
        "outbound": revision.outbound,
        "inbound": revision.inbound,
        "allow": revision.allow,
        "deny": revision.deny,
    }
    response = HttpResponse(json.dumps(body, indent=2) + "\n", content_type="application/json")
    name = f"{space.slug}-network-{revision.number}.json"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
