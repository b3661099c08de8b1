"""Rows that the API's tests act on."""

from __future__ import annotations

from typing import Any

from console.fleet.services import create_backend, create_space
from console.tenants.access import Principal
from console.tenants.models import Space, Tenant
from skills.ports import SYSTEM, Actor

__all__ = ["grants_everything", "make_tenant"]


def grants_everything(actor: Actor) -> Principal:
    return Principal(actor=actor, grants=(), everything=True)


def make_tenant(
    name: str, socket: str, *, provider: str = "local", values: dict[str, Any] | None = None
) -> Space:
    """A tenant with a space on this sandboxd, or on the backend that `values` are the settings of."""
    tenant = Tenant.objects.create(slug=name, name=name.title())
    backend = create_backend(
        tenant=tenant,
        name="Here",
        provider=provider,
        values={"socket": socket} if values is None else values,
        actor=SYSTEM,
    )
    return create_space(tenant=tenant, name="Lab", slug="lab", backend=backend, actor=SYSTEM)
