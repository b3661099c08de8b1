"""A tenant's backends: list, make, check, reconcile."""

from __future__ import annotations

from asgiref.sync import async_to_sync, sync_to_async
from django.http import Http404, HttpRequest, HttpResponse

from console.api.pages import page_of
from console.api.schema import operation
from console.api.spaces.serializers import (
    BackendSerializer,
    NewBackendSerializer,
    NewReconcileSerializer,
    ReconcileSerializer,
)
from console.api.views import TenantView, answer
from console.fleet.backends import add_backend
from console.fleet.models import Backend, ReconcileReport
from console.fleet.reconcile import request_reconcile
from console.fleet.services import check_backend
from console.tenants.access import Action

TAG = "backends"


class BackendView(TenantView):
    def backend(self, pk: str) -> Backend:
        row = Backend.objects.filter(tenant=self.tenant, pk=pk).first()
        if row is None:
            raise Http404
        return row


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
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewBackendSerializer)
        row = async_to_sync(add_backend)(
            tenant=self.tenant,
            name=wanted["name"],
            provider=wanted["provider"],
            values=wanted["settings"],
            actor=self.actor,
        )
        return answer(BackendSerializer(row).data, status=201)


class BackendDetail(BackendView):
    needs = {"GET": Action.VIEW}

    @operation("backends_get", "One backend", tag=TAG, response=BackendSerializer)
    def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        return answer(BackendSerializer(self.backend(backend)).data)


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
        row = await check_backend(await sync_to_async(self.backend)(backend))
        return answer(await sync_to_async(lambda: BackendSerializer(row).data)())


class Reconciles(BackendView):
    needs = {"GET": Action.VIEW, "POST": Action.OPERATE}
    creates = True

    @operation(
        "reconciles_list",
        "What comparisons of sandboxes and sessions found, newest first",
        tag=TAG,
        response=ReconcileSerializer,
        many=True,
    )
    def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        rows = ReconcileReport.objects.filter(backend=self.backend(backend))
        return page_of(request, rows, ReconcileSerializer)

    @operation(
        "reconciles_start",
        "Compare the backend's sandboxes with what needs them",
        tag=TAG,
        request=NewReconcileSerializer,
        response=ReconcileSerializer,
        status=202,
        idempotent=True,
        description="A worker does it; ask for the report until its state is `done` or `failed`.",
    )
    def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        dry_run = self.valid(NewReconcileSerializer)["dry_run"]
        report = request_reconcile(backend=self.backend(backend), dry_run=dry_run, actor=self.actor)
        return answer(ReconcileSerializer(report).data, status=202)


class ReconcileDetail(BackendView):
    needs = {"GET": Action.VIEW}

    @operation("reconciles_get", "One report", tag=TAG, response=ReconcileSerializer)
    def get(self, request: HttpRequest, backend: str, report: str) -> HttpResponse:
        rows = ReconcileReport.objects.filter(backend=self.backend(backend), pk=report)
        row = rows.first()
        if row is None:
            raise Http404
        return answer(ReconcileSerializer(row).data)
