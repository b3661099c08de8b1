"""Spaces, and what their backend can do."""

from __future__ import annotations

import dataclasses
from typing import Any

import django_filters
from django.http import HttpRequest, HttpResponse

from console.api.authentication import forget_keys
from console.api.pages import filtered, flag, page_of
from console.api.schema import operation, parameter
from console.api.spaces.serializers import (
    CapabilitiesSerializer,
    ChangeSpaceSerializer,
    NewSpaceSerializer,
    SpaceSerializer,
)
from console.api.views import ApiView, SpaceView, answer, forget_spaces
from console.fleet.models import Backend
from console.fleet.removal import request_removal
from console.fleet.runtime import shared_runtime
from console.fleet.services import create_space, update_space
from console.tenants.access import Action
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest

TAG = "spaces"


class SpaceFilter(django_filters.FilterSet):
    tenant = django_filters.CharFilter(field_name="tenant_id")
    slug = django_filters.CharFilter()

    class Meta:
        model = Space
        fields: tuple[str, ...] = ()


class Spaces(ApiView):
    needs = {"GET": None, "POST": None}
    creates = True

    @operation(
        "spaces_list",
        "The spaces that the caller may see",
        tag=TAG,
        response=SpaceSerializer,
        many=True,
        filters=SpaceFilter,
        path_errors=False,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = filtered(SpaceFilter, request, self.principal.spaces())
        return page_of(request, rows, SpaceSerializer)

    @operation(
        "spaces_create",
        "Make a space",
        tag=TAG,
        request=NewSpaceSerializer,
        response=SpaceSerializer,
        status=201,
        idempotent=True,
        description="Needs the right `manage` in the whole tenant.",
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewSpaceSerializer)
        tenant = self.principal.tenant(wanted["tenant_id"], Action.MANAGE)
        backend = Backend.objects.filter(pk=wanted["backend_id"], tenant=tenant).first()
        if backend is None:
            raise InvalidRequest("This tenant has no such backend; look at its list.")
        space = create_space(
            tenant=tenant,
            name=wanted["name"],
            slug=wanted["slug"],
            backend=backend,
            actor=self.actor,
            base_template=wanted["base_template"],
            description=wanted["description"],
        )
        return answer(SpaceSerializer(space).data, status=201)


class SpaceDetail(SpaceView):
    needs = {"GET": Action.VIEW, "PATCH": Action.MANAGE, "DELETE": Action.MANAGE}

    def enter(self, ids: dict[str, Any]) -> None:
        if self.request.method != "DELETE":
            super().enter(ids)
            return
        # Also of one that is being deleted already; and the right counts in the whole tenant, as for making one.
        self.space = self.principal.space(ids.pop("space"), Action.VIEW)
        self.principal.require(Action.MANAGE, tenant_id=self.space.tenant_id)

    @operation("spaces_get", "One space", tag=TAG, response=SpaceSerializer)
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer(SpaceSerializer(self.space).data)

    @operation(
        "spaces_change",
        "Change a space's settings",
        tag=TAG,
        request=ChangeSpaceSerializer,
        response=SpaceSerializer,
        description="For sandboxes that are made from now on.",
    )
    def patch(self, request: HttpRequest) -> HttpResponse:
        for name, value in self.valid(ChangeSpaceSerializer).items():
            setattr(self.space, name, value)
        self.space.full_clean(exclude=["backend", "current_release", "candidate_release"])
        space = update_space(space=self.space, actor=self.actor)
        forget_spaces()
        return answer(SpaceSerializer(space).data)

    @operation(
        "spaces_delete",
        "Delete a space with all that is in it",
        tag=TAG,
        response=SpaceSerializer,
        status=202,
        errors=(409,),
        parameters=[
            parameter("confirm", description="The space's short name; an empty space needs none."),
            parameter(
                "leave_snapshots",
                bool,
                "Agree that snapshots in an account that its backend does not use any more stay there.",
            ),
        ],
        description=(
            "Without `confirm` a 409 says in `details.consequences` what would go: sessions that run and "
            "sleep, releases, builds, keys. With it, nothing new happens in the space from then on, its keys "
            "are revoked, and a worker destroys its sessions and deletes its snapshots; ask for the space until "
            "it is a 404. `delete_problem` says what it waits for. Idempotent."
        ),
    )
    def delete(self, request: HttpRequest) -> HttpResponse:
        space = request_removal(
            space=self.space,
            actor=self.actor,
            confirm=request.GET.get("confirm", ""),
            leave_snapshots=flag(request, "leave_snapshots"),
        )
        forget_spaces()
        forget_keys()
        return answer(SpaceSerializer(space).data, status=202)


class SpaceCapabilities(SpaceView):
    needs = {"GET": Action.VIEW}

    @operation(
        "spaces_capabilities",
        "What the space's backend can do",
        tag=TAG,
        response=CapabilitiesSerializer,
        errors=(502, 504),
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        client = await shared_runtime().client(self.space.backend)
        found = dataclasses.asdict(client.capabilities)
        notes = found.pop("notes")
        return answer({"provider": client.provider, "capabilities": found, "notes": dict(notes)})
