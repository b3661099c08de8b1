"""Would a sandbox reach this host? By the policy, and if asked for, by trying."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.audit.services import Actor
from console.fleet.policies import Trial, try_host
from console.fleet.runtime import shared_runtime
from console.policies.drafts import Draft
from console.policies.enforcement import unenforceable
from console.policies.hosts import HostTest, judge
from console.policies.models import NetworkPolicyRevision
from console.policies.services import current_policy
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.policies.editor import Form
from console.web.policies.views import show
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.network import NetworkPolicy, Verdict

_MOST = 2000


@require_POST
async def test_host(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """Judges the policy in the form where that was sent along, else the one that holds."""
    space = await sync_to_async(request.principal.space)(space_id, Action.VIEW)
    present = await sync_to_async(current_policy)(space)
    text = request.POST.get("host", "").strip()[:_MOST]
    context: dict[str, Any] = {"host": text, "space": space, "revision": present}
    form = Form.posted(request.POST) if "number" in request.POST else None
    policy = form.draft().check().policy if form else present.policy()
    if policy is None:
        context["problem"] = _("The test judges what the form says: mend the marked entries first.")
        return await sync_to_async(_answer)(request, space, present, form, context)
    try:
        context["test"] = test = await sync_to_async(judge, thread_sensitive=False)(policy, text)
    except InvalidRequest as error:
        context["problem"] = error.message
    else:
        context |= {
            "rule": _rule(test),
            "saved": policy == present.policy(),
            "unenforceable": unenforceable(policy, space.backend.capabilities),
        }
        if "really" in request.POST:
            await sync_to_async(request.principal.require)(
                Action.POLICY, tenant_id=space.tenant_id, space_id=space.pk
            )
            context |= await _tried(request.principal.actor, space, policy, text, test)
    return await sync_to_async(_answer)(request, space, present, form, context)


def _answer(
    request: ConsoleRequest,
    space: Space,
    present: NetworkPolicyRevision,
    form: Form | None,
    context: dict[str, Any],
) -> HttpResponse:
    if request.htmx:
        return page(request, "policies/host_test.html", context, area="spaces")
    form = form or Form.of(Draft.of(present.policy()), number=present.number)
    form.spread()
    return show(request, space, present, form, extra={**context, "tested": True})


def _rule(test: HostTest) -> str:
    rule = test.decision.rule
    if rule == "outbound":
        return _("the outbound switch")
    if rule == "built-in":
        return _("the ranges that are always closed")
    if test.decision.verdict is Verdict.ALLOWED:
        return _("the allow entry %(entry)s") % {"entry": rule}
    return _("the deny entry %(entry)s") % {"entry": rule}


async def _tried(
    actor: Actor, space: Space, policy: NetworkPolicy, text: str, test: HostTest
) -> dict[str, Any]:
    try:
        trial = await try_host(
            runtime=shared_runtime(), space=space, policy=policy, target=text, actor=actor
        )
    except SandboxError as error:
        return {"trial_problem": error.message}
    return {"trial": trial, "surprise": _surprise(trial, test)}


def _surprise(trial: Trial, test: HostTest) -> str:
    """What it means that the attempt ended otherwise than the policy says."""
    verdict = test.decision.verdict
    if verdict is Verdict.ALLOWED and not trial.reached:
        return _(
            "The policy allows it, so look at the host itself, and at how the backend reaches the network."
        )
    if verdict is Verdict.DENIED and trial.reached:
        return _(
            "The policy denies it, yet it was reached: the backend does not enforce it. Tell its operator."
        )
    return ""
