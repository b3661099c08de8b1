"""Who is in a tenant, and in which role."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from console.audit.services import record
from console.tenants.access import Action, Principal
from console.tenants.models import Membership, Role, Space, Tenant, User
from console.tenants.sign_ins import end_all
from sandboxes.errors import Conflict, InvalidRequest

__all__ = ["add_member", "change_role", "remove_member"]


@transaction.atomic
def add_member(
    *,
    principal: Principal,
    tenant: Tenant,
    username: str,
    role: str,
    space: Space | None = None,
    password: str = "",
) -> Membership:
    """Give a person a role; a new person is made with `password`. InvalidRequest names what is wrong,
    Conflict if they have a role there already."""
    principal.require(Action.MANAGE, tenant_id=tenant.pk)
    if role not in Role.values or (role == Role.ADMIN and space is not None):
        raise InvalidRequest("Choose a role; a tenant admin is one in the whole tenant.")
    user = User.objects.filter(username=username).first()
    if user is None:
        user = _new_user(username, password)
    elif password:
        raise InvalidRequest(
            f"“{username}” exists already; leave the password empty to give them a role here."
        )
    if Membership.objects.filter(user=user, tenant=tenant, space=space).exists():
        raise Conflict(f"“{username}” has a role there already; change it instead.")
    membership = Membership.objects.create(user=user, tenant=tenant, space=space, role=role)
    _record(principal, "member.add", membership, {"role": role})
    return membership


@transaction.atomic
def change_role(*, principal: Principal, membership: Membership, role: str) -> Membership:
    """Conflict if it would leave the tenant without an admin."""
    principal.require(Action.MANAGE, tenant_id=membership.tenant_id)
    if role not in Role.values or (role == Role.ADMIN and membership.space_id is not None):
        raise InvalidRequest("Choose a role; a tenant admin is one in the whole tenant.")
    before = membership.role
    if role != Role.ADMIN:
        _keep_an_admin(membership)
    membership.role = role
    membership.save(update_fields=["role"])
    _record(principal, "member.change", membership, {"before": before, "after": role})
    return membership


@transaction.atomic
def remove_member(*, principal: Principal, membership: Membership) -> None:
    """Conflict if it would leave the tenant without an admin. The person stays, without this role, and is
    signed out everywhere."""
    principal.require(Action.MANAGE, tenant_id=membership.tenant_id)
    _keep_an_admin(membership)
    _record(principal, "member.remove", membership, {"role": membership.role})
    end_all(user=membership.user, actor=principal.actor)
    membership.delete()


def _new_user(username: str, password: str) -> User:
    user = User(username=username)
    try:
        user.full_clean(exclude=["password"])
        validate_password(password, user)
    except ValidationError as error:
        raise InvalidRequest(" ".join(error.messages)) from None
    user.set_password(password)
    user.save()
    return user


def _keep_an_admin(membership: Membership) -> None:
    if membership.role != Role.ADMIN:
        return
    admins = Membership.objects.select_for_update().filter(
        tenant=membership.tenant_id, role=Role.ADMIN, space=None
    )
    if not [other for other in admins if other.pk != membership.pk]:
        raise Conflict("That is the tenant's last admin; make somebody else an admin first.")


def _record(
    principal: Principal, action: str, membership: Membership, details: dict[str, str]
) -> None:
    record(
        actor=principal.actor,
        action=action,
        target=membership.user.get_username(),
        tenant_id=membership.tenant_id,
        space_id=membership.space_id,
        details=details,
    )
