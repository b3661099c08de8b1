"""What lives at a backend's provider account: asked of the provider by our tags, and of each session's
sandbox by its id, because providers have been seen to lose tags and to leave paused ones out of lists."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from console.fleet.models import Backend, Session, SessionState
from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError
from sandboxes.sessions.keys import TAG_BACKEND, TAG_BUILD, TAG_SESSION, TAG_SPACE, TAG_TENANT
from sandboxes.types import ListFilter, SandboxInfo, SandboxState

__all__ = ["Inventory", "LiveSandbox", "take_inventory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSandbox:
    sandbox_id: str
    state: str
    session: str = ""
    space: str = ""
    build: str = ""


@dataclass(slots=True, kw_only=True)
class Inventory:
    """`unverifiable` says why the provider couldn't be asked: then nothing is known, which is not zero."""

    live: list[LiveSandbox] = field(default_factory=list)
    unverifiable: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"live": [asdict(item) for item in self.live], "unverifiable": self.unverifiable}


async def take_inventory(backend: Backend) -> Inventory:
    """Never raises of the provider's trouble; wakes nothing."""
    inventory = Inventory()
    try:
        async with await backend.open_client() as client:
            await _ask(client, backend, inventory)
    except SandboxError as error:
        inventory.unverifiable = error.message
    return inventory


async def _ask(client: SandboxClient, backend: Backend, inventory: Inventory) -> None:
    ours = ListFilter(metadata={TAG_TENANT: backend.tenant_id})
    seen: set[str] = set()
    async for info in client.list(ours):
        if info.metadata.get(TAG_BACKEND, backend.pk) == backend.pk and _lives(info):
            seen.add(info.id)
            inventory.live.append(
                LiveSandbox(
                    sandbox_id=info.id,
                    state=info.state.value,
                    session=info.metadata.get(TAG_SESSION, ""),
                    space=info.metadata.get(TAG_SPACE, ""),
                    build=info.metadata.get(TAG_BUILD, ""),
                )
            )
    rows = Session.objects.filter(
        backend=backend, state__in=[SessionState.ACTIVE, SessionState.PAUSED]
    ).exclude(sandbox_id="")
    async for row in rows:
        found = None if row.sandbox_id in seen else await _look(client, row.sandbox_id)
        if found is not None:
            inventory.live.append(
                LiveSandbox(
                    sandbox_id=found.id,
                    state=found.state.value,
                    session=row.session_id,
                    space=row.space_id,
                )
            )


async def _look(client: SandboxClient, sandbox_id: str) -> SandboxInfo | None:
    try:
        info = await client.get(sandbox_id)
    except SandboxError as error:
        if error.gone:
            return None
        raise
    return info if _lives(info) else None


def _lives(info: SandboxInfo) -> bool:
    return info.state is not SandboxState.TERMINAL
