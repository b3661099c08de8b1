"""Tenants themselves: made by the platform's admin, named by their own."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from console.audit.services import record
from console.tenants.access import Action, Principal
from console.tenants.members import add_member
from console.tenants.models import Role, Tenant
from sandboxes.errors import InvalidRequest

__all__ = ["create_tenant", "rename_tenant"]


@transaction.atomic
def create_tenant(
    *,
    principal: Principal,
    slug: str,
    name: str,
    admin: str = "",
    admin_password: str = "",
) -> Tenant:
    """A tenant, and with `admin` its first one: a person who exists, or a new one with that password.
    InvalidRequest names what is wrong; nothing is made then."""
    principal.require_platform()
    if Tenant.objects.filter(slug=slug).exists():
        raise InvalidRequest(f"A tenant called “{slug}” exists already; choose another short name.")
    tenant = Tenant(slug=slug, name=name)
    try:
        tenant.full_clean()
    except ValidationError as error:
        raise InvalidRequest(" ".join(error.messages)) from None
    tenant.save()
    record(
        actor=principal.actor,
        action="tenant.create",
        target=slug,
        tenant_id=tenant.pk,
        details={"name": name, "admin": admin},
    )
    if admin:
        add_member(
            principal=principal,
            tenant=tenant,
            username=admin,
            role=Role.ADMIN,
            password=admin_password,
        )
    return tenant


@transaction.atomic
def rename_tenant(*, principal: Principal, tenant: Tenant, name: str) -> Tenant:
    """Its short name stays. Idempotent."""
    principal.require(Action.MANAGE, tenant_id=tenant.pk)
    before = tenant.name
    if before != name:
        tenant.name = name
        tenant.save(update_fields=["name"])
        record(
            actor=principal.actor,
            action="tenant.rename",
            target=tenant.slug,
            tenant_id=tenant.pk,
            details={"before": before, "after": name},
        )
    return tenant
