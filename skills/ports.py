"""What skills needs of the models above it. It gets them through foreign keys, never by import."""

from __future__ import annotations

from typing import Any, Protocol

from sandboxes.client import SandboxClient


class BackendPort(Protocol):
    """console.fleet.models.Backend, as a build sees it."""

    pk: str
    name: str

    @property
    def fingerprint(self) -> str: ...

    async def open_client(self) -> SandboxClient: ...


class SpacePort(Protocol):
    """console.tenants.models.Space, as a build sees it."""

    pk: str
    slug: str
    tenant_id: str
    backend_id: str
    backend: BackendPort
    base_template: str
    current_release: Any
    current_release_id: str | None
    idle_timeout_s: int
