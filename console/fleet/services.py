"""Use cases around spaces and backends."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.audit.services import Actor, record
from console.fleet.models import Backend
from console.policies.services import create_first_policy
from console.tenants.models import Space, Tenant
from sandboxes import registry
from sandboxes.errors import InvalidRequest, SandboxError

__all__ = ["check_backend", "create_backend", "create_space", "update_space"]

EDITABLE = ("name", "description", "base_template", "rollout", "idle_timeout_s", "env")


@transaction.atomic
def create_space(
    *,
    tenant: Tenant,
    name: str,
    slug: str,
    backend: Backend,
    actor: Actor,
    base_template: str = "base",
    description: str = "",
) -> Space:
    """A space with its first policy. InvalidRequest if the slug is taken or the backend foreign."""
    if backend.tenant_id != tenant.pk:
        raise InvalidRequest("That backend belongs to another tenant; choose one of this tenant.")
    if Space.objects.filter(tenant=tenant, slug=slug).exists():
        raise InvalidRequest(f"A space called “{slug}” exists already; choose another short name.")
    space = Space(
        tenant=tenant,
        name=name,
        slug=slug,
        backend=backend,
        base_template=base_template,
        description=description,
    )
    space.full_clean()
    space.save()
    create_first_policy(space=space, actor=actor)
    record(
        actor=actor,
        action="space.create",
        target=slug,
        tenant_id=tenant.pk,
        space_id=space.pk,
        details={"backend": backend.name, "base_template": base_template},
    )
    return space


@transaction.atomic
def update_space(*, space: Space, actor: Actor) -> Space:
    """Save a space's settings as they were edited. What serves and where is not among them."""
    before = Space.objects.select_for_update().get(pk=space.pk)
    changed = [name for name in EDITABLE if getattr(before, name) != getattr(space, name)]
    if changed:
        space.save(update_fields=changed)
        record(
            actor=actor,
            action="space.update",
            target=space.slug,
            tenant_id=space.tenant_id,
            space_id=space.pk,
            details={
                "before": {name: getattr(before, name) for name in changed},
                "after": {name: getattr(space, name) for name in changed},
            },
        )
    return space


@transaction.atomic
def create_backend(
    *, tenant: Tenant, name: str, provider: str, values: Mapping[str, Any], actor: Actor
) -> Backend:
    """A backend from its provider's settings, secrets apart. InvalidRequest names what is wrong."""
    if Backend.objects.filter(tenant=tenant, name=name).exists():
        raise InvalidRequest(f"A backend called “{name}” exists already; choose another name.")
    fields = {field.name: field for field in dataclasses.fields(registry.settings_type(provider))}
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise InvalidRequest(f"This backend has no setting called {', '.join(unknown)}.")
    secret = {key: value for key, value in values.items() if fields[key].metadata.get("secret")}
    backend = Backend(
        tenant=tenant,
        name=name,
        provider=provider,
        settings={key: value for key, value in values.items() if key not in secret},
        secrets=secret,
    )
    backend.full_clean(exclude=["secrets", "settings", "capabilities"])
    backend.save()
    record(
        actor=actor,
        action="backend.create",
        target=name,
        tenant_id=tenant.pk,
        details={"provider": provider, "settings": backend.settings},
    )
    return backend


async def check_backend(backend: Backend) -> Backend:
    """Ask the provider whether it answers and what it can do; the answer is kept on the row."""
    backend.check_took_ms = None
    try:
        async with await backend.open_client() as client:
            began = time.monotonic()
            await client.health()
            backend.check_took_ms = round((time.monotonic() - began) * 1000)
            backend.capabilities = dataclasses.asdict(client.capabilities)
            backend.check_error = ""
    except SandboxError as error:
        backend.check_error = error.message[:500]
    backend.checked_at = timezone.now()
    await Backend.objects.filter(pk=backend.pk).aupdate(
        capabilities=backend.capabilities,
        check_error=backend.check_error,
        check_took_ms=backend.check_took_ms,
        checked_at=backend.checked_at,
    )
    return backend
