"""What a tenant's admin decides about how its members sign in."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _

from console.audit.services import record
from console.tenants import lockouts, sign_ins
from console.tenants.access import Action, Principal
from console.tenants.account_models import SignIn, TotpDevice
from console.tenants.accounts import record_account
from console.tenants.lockouts import Lock
from console.tenants.models import Membership, Tenant, User
from sandboxes.errors import Conflict

__all__ = [
    "end_member_sign_ins",
    "lift_member_lock",
    "locks_of",
    "people_of",
    "require_two_step",
    "with_sign_ins",
    "without_two_step",
]


def people_of(principal: Principal) -> QuerySet[User]:
    """Whoever has a role in a tenant that `principal` manages."""
    managed = principal.tenants(Action.MANAGE)
    return User.objects.filter(pk__in=Membership.objects.filter(tenant__in=managed).values("user"))


def with_sign_ins(people: QuerySet[User]) -> QuerySet[User]:
    """Each with `two_step` (whether it is on), `browsers` (in how many they are signed in) and `last_seen_at`
    (null if in none)."""
    held = (
        SignIn.objects.filter(user=OuterRef("pk"), session__expire_date__gt=timezone.now())
        .order_by()
        .values("user")
    )
    return people.annotate(
        two_step=Exists(TotpDevice.objects.filter(user=OuterRef("pk"), confirmed=True)),
        browsers=Coalesce(Subquery(held.annotate(count=Count("pk")).values("count")), 0),
        last_seen_at=Subquery(held.annotate(last=Max("last_used_at")).values("last")),
    )


def locks_of(people: QuerySet[User]) -> list[tuple[User, Lock]]:
    """Those of these people who have to wait after wrong passwords or codes, and from where."""
    locks = lockouts.locks()
    by_name = {
        user.get_username(): user
        for user in people.filter(username__in={lock.username for lock in locks})
    }
    return [(by_name[lock.username], lock) for lock in locks if lock.username in by_name]


@transaction.atomic
def require_two_step(*, principal: Principal, tenant: Tenant, required: bool) -> None:
    """Whether members without two-step sign-in may do nothing but set it up. Conflict if whoever asks has
    none themselves."""
    principal.require(Action.MANAGE, tenant_id=tenant.pk)
    own = TotpDevice.objects.filter(user=principal.actor.user_id, confirmed=True)
    if required and principal.actor.user_id is not None and not own.exists():
        raise Conflict(_("Turn on your own two-step sign-in first, in your settings."))
    before = tenant.two_step_required
    if before == required:
        return
    tenant.two_step_required = required
    tenant.save(update_fields=["two_step_required"])
    record(
        actor=principal.actor,
        action="tenant.change",
        target=tenant.slug,
        tenant_id=tenant.pk,
        details={"two_step_required": {"before": before, "after": required}},
    )


def without_two_step(tenants: Iterable[Tenant]) -> dict[str, int]:
    """How many members of each would have to set it up."""
    rows = (
        Membership.objects.filter(tenant__in=list(tenants), user__is_active=True)
        .exclude(user__totp_device__confirmed=True)
        .order_by()
        .values_list("tenant")
        .annotate(Count("user", distinct=True))
    )
    return dict(rows)


def end_member_sign_ins(*, principal: Principal, user: User) -> int:
    """Sign a member out everywhere; how many sign-ins that ended."""
    _require_member(principal, user)
    return sign_ins.end_all(user=user, actor=principal.actor)


@transaction.atomic
def lift_member_lock(*, principal: Principal, user: User) -> bool:
    """Let a member try again at once. False if nothing was locked."""
    _require_member(principal, user)
    username = user.get_username()
    held = [lock for lock in lockouts.locks() if lock.username == username]
    lockouts.lift(username)
    if held:
        record_account(
            actor=principal.actor,
            user=user,
            action="account.unlock",
            details={"addresses": [lock.address for lock in held]},
        )
    return bool(held)


def _require_member(principal: Principal, user: User) -> None:
    if not people_of(principal).filter(pk=user.pk).exists():
        raise PermissionDenied(_("They have no role in a tenant that you manage."))
