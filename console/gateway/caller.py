"""Who calls the control plane: an API key, the one space that it acts in, and that space's backend."""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from starlette.requests import Request

from console.audit.services import record
from console.fleet.models import GATEWAY_ORIGIN, Backend
from console.fleet.rates import blocked_s, count_wrong_key
from console.fleet.runtime import Runtime, shared_runtime
from console.gateway.narrowing import Forbidden
from console.tenants.access import Action, Principal
from console.tenants.keys import authenticate
from console.tenants.models import ApiKey, Space
from sandboxes.client import ProtocolAccess, SandboxClient
from sandboxes.errors import Authentication, Capacity, InvalidRequest, Unsupported
from sandboxes.sessions import TAG_SPACE, TAG_TENANT
from sandboxes.wire.messages import API_KEY_HEADER

__all__ = ["SPACE_HEADER", "Caller", "TooManyGuesses", "identify", "protocol_of"]

SPACE_HEADER = "X-Skillyard-Space"
_GOOD_FOR_S = 300.0
_MOST_GOOD = 4096


class TooManyGuesses(Capacity):
    """Of keys, from one address. A client that tries the same key again gains nothing by it."""

    retryable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    principal: Principal
    space: Space
    runtime: Runtime
    client: SandboxClient
    """Of the space's backend as it is now; a sandbox may live on one that the space had before."""

    @property
    def actor(self) -> str:
        """As the history of sessions names it."""
        return f"{GATEWAY_ORIGIN}, {self.principal.actor.name}"

    @property
    def protocol(self) -> ProtocolAccess:
        return protocol_of(self.client)

    @property
    def tags(self) -> dict[str, str]:
        """What every sandbox of the space carries."""
        return {TAG_TENANT: self.space.tenant_id, TAG_SPACE: self.space.pk}

    async def client_at(self, backend: Backend) -> SandboxClient:
        if backend.pk == self.space.backend_id:
            return self.client
        return await self.runtime.client(backend)

    async def audit(self, action: str, target: str, **details: object) -> None:
        await sync_to_async(record)(
            actor=self.principal.actor,
            action=action,
            target=target,
            tenant_id=self.space.tenant_id,
            space_id=self.space.pk,
            details=details,
        )


async def identify(request: Request) -> Caller:
    """Authentication for a bad key, TooManyGuesses for one more from this address, Forbidden for one that
    may not run sandboxes, InvalidRequest if it is left open which space is meant."""
    secret = _secret(request)
    address = request.client.host if request.client else None
    key = await _known_key(secret, address or "")
    principal, space = await sync_to_async(_look_up)(
        key,
        request.headers.get(SPACE_HEADER, "").strip(),
        address,
        request.headers.get("X-Request-ID", "")[:64] or uuid.uuid4().hex,
    )
    runtime = shared_runtime()
    client = await runtime.client(space.backend)
    return Caller(principal=principal, space=space, runtime=runtime, client=client)


def protocol_of(client: SandboxClient) -> ProtocolAccess:
    """Unsupported for a backend that does not speak the protocol."""
    if client.protocol is None:
        raise Unsupported(
            "This space's backend does not speak the E2B protocol, so the gateway can't relay to it; use "
            "the REST API."
        )
    return client.protocol


def _secret(request: Request) -> str:
    key = request.headers.get(API_KEY_HEADER)
    if key is None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        key = token if scheme.lower() == "bearer" else ""
    if not key.strip():
        raise Authentication(f"The API key is missing; send a key of the space as {API_KEY_HEADER}")
    return key.strip()


_good: OrderedDict[bytes, float] = OrderedDict()
"""Hashes of keys that were right, until when (monotonic): somebody else's guesses from the same address,
which may be a proxy's, don't shut these out."""


async def _known_key(secret: str, address: str) -> ApiKey:
    digest = hashlib.sha256(secret.encode()).digest()
    if _good.get(digest, 0.0) < time.monotonic() and (wait_s := blocked_s(address)):
        raise _too_many(wait_s)
    key = await sync_to_async(authenticate)(secret)
    if key is not None:
        _good[digest] = time.monotonic() + _GOOD_FOR_S
        if len(_good) > _MOST_GOOD:
            _good.popitem(last=False)
        return key
    _good.pop(digest, None)
    if wait_s := await count_wrong_key(address, door=GATEWAY_ORIGIN):
        raise _too_many(wait_s)
    raise Authentication("This API key is unknown, revoked or expired; make a new one")


def _too_many(wait_s: float) -> TooManyGuesses:
    return TooManyGuesses(
        "Too many wrong API keys came from this address; check the key and try again in "
        f"{math.ceil(wait_s)} s.",
        retry_after_s=wait_s,
    )


def _look_up(
    key: ApiKey, wanted: str, address: str | None, request_id: str
) -> tuple[Principal, Space]:
    principal = Principal.of_key(key, address=address, request_id=request_id)
    space = (
        Space.objects.select_related("tenant", "backend", "current_release")
        .filter(pk=_space_id(key, wanted))
        .first()
    )
    if space is None:
        raise _no_space(wanted)
    try:
        principal.require(Action.RUN, tenant_id=space.tenant_id, space_id=space.pk)
    except PermissionDenied as error:
        raise Forbidden(str(error)) from None
    return principal, space


def _space_id(key: ApiKey, wanted: str) -> str:
    if key.space_id is None and not wanted:
        raise InvalidRequest(
            f"This key opens all spaces of its tenant; say which one is meant, as {SPACE_HEADER}, or make "
            "a key of one space"
        )
    if not wanted:
        return key.space_id or ""
    spaces = Space.objects.filter(Q(pk=wanted) | Q(slug=wanted), tenant=key.tenant_id)
    found: list[str] = list(spaces.values_list("pk", flat=True)[:2])
    if not found or key.space_id not in (None, *found):
        raise _no_space(wanted)
    return wanted if wanted in found else found[0]


def _no_space(wanted: str) -> Forbidden:
    return Forbidden(f"This key opens no space “{wanted}”; check {SPACE_HEADER}")
