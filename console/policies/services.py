"""Saving and reading a space's network policy."""

from __future__ import annotations

from dataclasses import asdict

from django.db import transaction

from console.audit.services import Actor, record
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.errors import Conflict
from sandboxes.network import OPEN, NetworkPolicy


def current_policy(space: Space) -> NetworkPolicyRevision:
    """The revision that holds. Every space has one from its creation on."""
    return NetworkPolicyRevision.objects.filter(space=space).latest("number")


@transaction.atomic
def save_policy(
    *,
    space: Space,
    policy: NetworkPolicy,
    actor: Actor,
    reason: str = "",
    expected_number: int | None = None,
) -> NetworkPolicyRevision:
    """Append a revision; an unchanged policy returns the present one.

    `expected_number` is the revision that the editor saw: Conflict if another came in between.
    """
    Space.objects.select_for_update().get(pk=space.pk)
    last = NetworkPolicyRevision.objects.filter(space=space).first()
    if expected_number is not None and last is not None and last.number != expected_number:
        raise Conflict(
            f"The policy was changed meanwhile (it is now revision {last.number}, you edited "
            f"{expected_number}). Look at the new one and apply your change again."
        )
    if last is not None and last.policy() == policy:
        return last
    revision = NetworkPolicyRevision.objects.create(
        space=space,
        number=(last.number if last else 0) + 1,
        outbound=policy.outbound,
        inbound=policy.inbound,
        allow=list(policy.allow),
        deny=list(policy.deny),
        reason=reason,
        created_by_id=actor.user_id,
    )
    record(
        actor=actor,
        action="policy.save",
        target=f"{space.slug}#{revision.number}",
        tenant_id=space.tenant_id,
        space_id=space.pk,
        details={
            "before": last and asdict(last.policy()),
            "after": asdict(policy),
            "reason": reason,
        },
    )
    return revision


def create_first_policy(*, space: Space, actor: Actor) -> NetworkPolicyRevision:
    return save_policy(space=space, policy=OPEN, actor=actor, reason="default of a new space")
