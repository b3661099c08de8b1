"""Runs that a worker does on a backend: comparisons with what needs its sandboxes, and the eight points."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse

from console.api.backends.serializers import (
    NewReconcileSerializer,
    NewVerificationSerializer,
    ReconcileSerializer,
    VerificationSerializer,
)
from console.api.backends.views import TAG, BackendView
from console.api.pages import page_of
from console.api.schema import operation
from console.api.views import answer
from console.fleet.models import ReconcileReport, Verification
from console.fleet.reconcile import request_reconcile
from console.fleet.verification import request_verification
from console.tenants.access import Action

QUEUED = "It is done also if no worker is there yet: then the next one that comes takes it up."


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
        description=f"Ask for the report until its state is `done` or `failed`. {QUEUED}",
    )
    def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        dry_run = self.valid(NewReconcileSerializer)["dry_run"]
        report = request_reconcile(backend=self.backend(backend), dry_run=dry_run, actor=self.actor)
        return answer(ReconcileSerializer(report).data, status=202)


class ReconcileDetail(BackendView):
    needs = {"GET": Action.VIEW}

    @operation("reconciles_get", "One report", tag=TAG, response=ReconcileSerializer)
    def get(self, request: HttpRequest, backend: str, report: str) -> HttpResponse:
        row = ReconcileReport.objects.filter(backend=self.backend(backend), pk=report).first()
        if row is None:
            raise Http404
        return answer(ReconcileSerializer(row).data)


class Verifications(BackendView):
    needs = {"GET": Action.VIEW, "POST": Action.MANAGE}
    creates = True

    @operation(
        "verifications_list",
        "Reports of the eight points that sessions and releases rest on, newest first",
        tag=TAG,
        response=VerificationSerializer,
        many=True,
    )
    def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        rows = Verification.objects.filter(backend=self.backend(backend))
        return page_of(request, rows, VerificationSerializer)

    @operation(
        "verifications_start",
        "Try the eight points on a backend",
        tag=TAG,
        request=NewVerificationSerializer,
        response=VerificationSerializer,
        status=202,
        idempotent=True,
        description=(
            "It makes a few sandboxes and deletes them again. Ask for the report until its state is "
            f"`passed` or `failed`. {QUEUED}"
        ),
    )
    def post(self, request: HttpRequest, backend: str) -> HttpResponse:
        template = self.valid(NewVerificationSerializer)["template"]
        row = request_verification(
            backend=self.backend(backend), template=template.strip(), actor=self.actor
        )
        return answer(VerificationSerializer(row).data, status=202)


class VerificationDetail(BackendView):
    needs = {"GET": Action.VIEW}

    @operation("verifications_get", "One report", tag=TAG, response=VerificationSerializer)
    def get(self, request: HttpRequest, backend: str, report: str) -> HttpResponse:
        row = Verification.objects.filter(backend=self.backend(backend), pk=report).first()
        if row is None:
            raise Http404
        return answer(VerificationSerializer(row).data)
