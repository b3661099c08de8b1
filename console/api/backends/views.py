"""A tenant's backends: list, connect, change, check, cordon, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse

from console.api.backends.serializers import (
    BackendChangeSerializer,
    BackendSerializer,
    ChangeBackendSerializer,
    CordonSerializer,
    CredentialsSerializer,
    FormerAccountSerializer,
    InventorySerializer,
    NewBackendSerializer,
)
from console.api.pages import flag, page_of
from console.api.schema import operation, parameter
from console.api.views import TenantView, answer
from console.audit.services import Actor
from console.fleet.accounts import forget, prove_same_account
from console.fleet.backends import (
    add_backend,
    cordon_backend,
    delete_backend,
    edit_backend,
    preview_change,
    rotate_credentials,
    uncordon_backend,
)
from console.fleet.connection import Connection, check_urls, masked, read
from console.fleet.inventory import take_inventory
from console.fleet.models import Backend, FormerAccount
from console.fleet.prices import checked_price, set_price
from console.fleet.services import check_backend
from console.tenants.access import Action
from skills.models import Release

TAG = "backends"
LIVE = (
    "A change by which it would point at another account or place is a 409 while sandboxes live there, with "
    "`details.inventory`, unless `end_sandboxes` is sent; so is one where that can't be found out, unless `force` "
    "is. Credentials that are proven to open the same account change nothing else."
)


class BackendView(TenantView):
    def backend(self, pk: str) -> Backend:
        row = Backend.objects.filter(tenant=self.tenant, pk=pk).first()
        if row is None:
            raise Http404
        return row

    async def abackend(self, pk: str) -> Backend:
        return await sync_to_async(self.backend)(pk)


async def _save_price(row: Backend, wanted: Mapping[str, Any], actor: Actor) -> None:
    """If one was sent."""
    if "hourly_cost" in wanted:
        await sync_to_async(set_price)(
            backend=row,
            hourly_cost=wanted["hourly_cost"],
            currency=wanted["currency"],
            actor=actor,
        )


async def backend_json(row: Backend) -> Any:
    return await sync_to_async(lambda: BackendSerializer(row).data)()


class Backends(BackendView):
    needs = {"GET": Action.VIEW, "POST": Action.MANAGE}
    creates = True

    @operation(
        "backends_list", "A tenant's backends", tag=TAG, response=BackendSerializer, many=True
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        return page_of(request, Backend.objects.filter(tenant=self.tenant), BackendSerializer)

    @operation(
        "backends_create",
        "Connect a provider",
        tag=TAG,
        request=NewBackendSerializer,
        response=BackendSerializer,
        status=201,
        idempotent=True,
        description="It is not asked whether it answers; check it next.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewBackendSerializer)
        checked_price(wanted.get("hourly_cost"), wanted["currency"])
        row = await add_backend(
            tenant=self.tenant,
            name=wanted["name"],
            provider=wanted["provider"],
            values=wanted["settings"],
            actor=self.actor,
        )
        await _save_price(row, wanted, self.actor)
        return answer(await backend_json(row), status=201)


class BackendDetail(BackendView):
    needs = {"GET": Action.VIEW, "PATCH": Action.MANAGE, "DELETE": Action.MANAGE}

    @operation("backends_get", "One backend", tag=TAG, response=BackendSerializer)
    def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        return answer(BackendSerializer(self.backend(backend)).data)

    @operation(
        "backends_change",
        "Change a backend's name, settings and price",
        tag=TAG,
        request=ChangeBackendSerializer,
        response=BackendSerializer,
        errors=(409,),
        description=LIVE,
    )
    async def patch(self, request: HttpRequest, backend: str) -> HttpResponse:
        wanted = self.valid(ChangeBackendSerializer)
        checked_price(wanted.get("hourly_cost"), wanted["currency"])
        row = await self.abackend(backend)
        changed = await edit_backend(
            backend=row,
            name=wanted.get("name", row.name),
            connection=_merged(row, wanted["settings"]),
            actor=self.actor,
            force=wanted["force"],
            end_sandboxes=wanted["end_sandboxes"],
        )
        await _save_price(changed, wanted, self.actor)
        return answer(await backend_json(changed))

    @operation(
        "backends_delete",
        "Delete a backend",
        tag=TAG,
        status=204,
        errors=(409,),
        parameters=[
            parameter("force", bool, "Also where it can't be asked what lives there; no more.")
        ],
        description=(
            "409 while spaces or releases need it (`details.names`), and while sandboxes live on it "
            "(`details.inventory`). Its reports go with it."
        ),
    )
    async def delete(self, request: HttpRequest, backend: str) -> HttpResponse:
        force = flag(request, "force")
        row = await self.abackend(backend)
        await delete_backend(backend=row, actor=self.actor, force=force)
        return HttpResponse(status=204)


class ChangePreview(BackendView):
    needs = {"POST": Action.MANAGE}

    @operation(
        "backends_preview",
        "What a change would do, without making it",
        tag=TAG,
        request=ChangeBackendSerializer,
        response=BackendChangeSerializer,
    )
    async def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        wanted = self.valid(ChangeBackendSerializer)
        row = await self.abackend(backend)
        connection = _merged(row, wanted["settings"])
        await check_urls(connection)
        proof = None
        if await sync_to_async(Connection.of(row).identity_changes)(connection):
            proof = await prove_same_account(backend=row, connection=connection)
        change = await sync_to_async(preview_change)(row, connection, proof)
        return answer(
            {
                "identity": [str(label) for label in change.identity],
                "moves_account": change.moves_account,
                "same_account": proof.same if proof else True,
                "proof": proof.reason if proof else "",
                "silent_releases": _named(change.silent),
                "heard_releases": _named(change.heard),
                "spaces": [space.pk for space in change.spaces],
                "live_sessions": change.sessions,
            }
        )


class Credentials(BackendView):
    needs = {"POST": Action.MANAGE}

    @operation(
        "backends_rotate",
        "Put new credentials in the place of the stored ones",
        tag=TAG,
        request=CredentialsSerializer,
        response=BackendSerializer,
        errors=(409, 502, 504),
        description=f"The provider is asked first; nothing is changed if it refuses them. {LIVE}",
    )
    async def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        wanted = self.valid(CredentialsSerializer)
        row = await rotate_credentials(
            backend=await self.abackend(backend),
            secrets=wanted["secrets"],
            actor=self.actor,
            force=wanted["force"],
            end_sandboxes=wanted["end_sandboxes"],
        )
        return answer(await backend_json(row))


class FormerAccounts(BackendView):
    needs = {"GET": Action.MANAGE}

    @operation(
        "former_accounts_list",
        "Accounts that a backend left, and how far their cleaning up is",
        tag=TAG,
        response=FormerAccountSerializer,
        many=True,
    )
    def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        rows = FormerAccount.objects.filter(backend=self.backend(backend))
        return page_of(request, rows, FormerAccountSerializer)


class FormerAccountDetail(BackendView):
    needs = {"DELETE": Action.MANAGE}

    @operation(
        "former_accounts_give_up",
        "Leave what is left at a former account, and erase its credentials",
        tag=TAG,
        response=FormerAccountSerializer,
        description="What lives there is nobody's then. Idempotent.",
    )
    def delete(self, request: HttpRequest, backend: str, former: str) -> HttpResponse:
        row = FormerAccount.objects.filter(backend=self.backend(backend), pk=former).first()
        if row is None:
            raise Http404
        return answer(FormerAccountSerializer(forget(former=row, actor=self.actor)).data)


class Cordon(BackendView):
    needs = {"PUT": Action.MANAGE, "DELETE": Action.MANAGE}

    @operation(
        "backends_cordon",
        "Keep new sandboxes off a backend",
        tag=TAG,
        request=CordonSerializer,
        response=BackendSerializer,
        description="What runs on it runs on; whoever would get a new sandbox gets a 409 with the reason.",
    )
    def put(self, request: HttpRequest, backend: str) -> HttpResponse:
        reason = self.valid(CordonSerializer)["reason"]
        row = cordon_backend(backend=self.backend(backend), actor=self.actor, reason=reason)
        return answer(BackendSerializer(row).data)

    @operation(
        "backends_uncordon",
        "Let a backend start new sandboxes again",
        tag=TAG,
        response=BackendSerializer,
        description="Idempotent.",
    )
    def delete(self, request: HttpRequest, backend: str) -> HttpResponse:
        row = uncordon_backend(backend=self.backend(backend), actor=self.actor)
        return answer(BackendSerializer(row).data)


class BackendCheck(BackendView):
    needs = {"POST": Action.MANAGE}

    @operation(
        "backends_check",
        "Ask the provider whether it answers and what it can do",
        tag=TAG,
        response=BackendSerializer,
        description="`check_error` is empty if it answered.",
    )
    async def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        row = await check_backend(await self.abackend(backend))
        return answer(await backend_json(row))


class BackendInventory(BackendView):
    needs = {"GET": Action.VIEW}

    @operation(
        "backends_inventory",
        "What lives at the provider's account of this tenant",
        tag=TAG,
        response=InventorySerializer,
        description="Asked of the provider. Wakes nothing.",
    )
    async def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        inventory = await take_inventory(await self.abackend(backend))
        return answer(inventory.to_json())


def _merged(row: Backend, settings: dict[str, Any]) -> Connection:
    return read(row.provider, {**masked(row), **settings}, stored=row)


def _named(releases: list[Release]) -> list[dict[str, Any]]:
    return [
        {"space_id": row.space_id, "release_id": row.pk, "generation": row.generation}
        for row in releases
    ]
