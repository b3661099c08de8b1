"""Where a sandbox's data plane is: asked of the database once a process, then known."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from console.fleet.database import Database
from console.fleet.models import Backend
from console.fleet.runtime import shared_runtime
from console.gateway.caller import protocol_of
from console.gateway.models import GatewaySandbox
from sandboxes.client import ProtocolAccess
from sandboxes.types import Sandbox

__all__ = ["Place", "find_place", "signers"]

_MOST_PLACES = 10_000
_BACKEND_FRESH_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """A sandbox is never moved: none of this changes while it lives. `access_token` is set where the gateway
    has to ask for the tokens, because the backend's envd asks for none."""

    sandbox: Sandbox
    backend_id: str
    access_token: str | None = None

    async def protocol(self) -> ProtocolAccess:
        runtime = shared_runtime()
        known = _backends.get(self.backend_id)
        if known is None or known[0] < time.monotonic():
            async with Database():
                backend = await Backend.objects.aget(pk=self.backend_id)
            known = (time.monotonic() + _BACKEND_FRESH_S, backend)
            _backends[self.backend_id] = known
        return protocol_of(await runtime.client(known[1]))


_places: OrderedDict[str, Place] = OrderedDict()
_backends: dict[str, tuple[float, Backend]] = {}
_tokens: OrderedDict[str, str] = OrderedDict()


async def find_place(sandbox_id: str) -> Place | None:
    """None for a sandbox that no client of the gateway made or connected to."""
    if (place := _places.get(sandbox_id)) is not None:
        return place
    async with Database():
        row = await GatewaySandbox.objects.filter(pk=sandbox_id).afirst()
    if row is None or not row.access_token:
        return None
    place = Place(
        Sandbox(
            id=row.sandbox_id,
            template_id="",
            domain=row.domain or None,
            traffic_token=row.traffic_token,
        ),
        row.backend_id,
        row.access_token if row.guarded else None,
    )
    _places[sandbox_id] = place
    if len(_places) > _MOST_PLACES:
        _places.popitem(last=False)
    return place


async def signers() -> list[tuple[str, str]]:
    """(sandbox, its access token) of the newest sandboxes, newest first."""
    async with Database():
        rows = GatewaySandbox.objects.order_by("-created_at")[:_MOST_PLACES]
        ids = [pk async for pk in rows.values_list("pk", flat=True)]
        new = [pk for pk in ids if not _tokens.get(pk)]
        async for row in GatewaySandbox.objects.filter(pk__in=new):
            _tokens[row.pk] = row.access_token
    while len(_tokens) > _MOST_PLACES:
        _tokens.popitem(last=False)
    return [(pk, _tokens[pk]) for pk in ids if _tokens.get(pk)]
