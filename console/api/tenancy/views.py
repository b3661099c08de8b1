"""Who calls, the tenants they see, and a tenant's members and API keys."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse

from console.api.authentication import forget_keys
from console.api.pages import page_of
from console.api.schema import operation
from console.api.tenancy.serializers import (
    ChangeRoleSerializer,
    ChangeTenantSerializer,
    IssuedKeySerializer,
    KeySerializer,
    MemberSerializer,
    MeSerializer,
    NewKeySerializer,
    NewMemberSerializer,
    NewTenantSerializer,
    TenantSerializer,
)
from console.api.views import ApiView, MemberView, TenantView, answer
from console.tenants.access import PLATFORM, Action
from console.tenants.keys import issue_key, revoke_key
from console.tenants.members import add_member, change_role, remove_member
from console.tenants.models import ApiKey, Membership, Space
from console.tenants.tenants import create_tenant, rename_tenant
from sandboxes.errors import InvalidRequest

TAG = "tenancy"


class Me(ApiView):
    needs = {"GET": None}

    @operation(
        "me", "Who calls, and what they may do", tag=TAG, response=MeSerializer, path_errors=False
    )
    async def get(self, request: HttpRequest) -> HttpResponse:
        grants = [
            {
                "tenant_id": grant.tenant_id,
                "space_id": grant.space_id,
                "rights": sorted(grant.actions),
            }
            for grant in self.principal.grants
        ]
        return answer(
            {
                "name": self.actor.name,
                "is_platform_admin": self.principal.everything,
                "grants": grants,
            }
        )


class Tenants(ApiView):
    needs = {"GET": None, "POST": None}
    creates = True

    @operation(
        "tenants_list",
        "The tenants in which the caller has any right",
        tag=TAG,
        response=TenantSerializer,
        many=True,
        path_errors=False,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        return page_of(request, self.principal.member_of(), TenantSerializer)

    @operation(
        "tenants_create",
        "Make a tenant",
        tag=TAG,
        request=NewTenantSerializer,
        response=TenantSerializer,
        status=201,
        idempotent=True,
        description=(
            f"For the platform's admin, or a key with `{PLATFORM}`, which only they can grant. Such a key "
            "then makes the tenant's own keys."
        ),
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        self.principal.require_platform()
        wanted = self.valid(NewTenantSerializer)
        admin = wanted["admin"] or {}
        tenant = create_tenant(
            principal=self.principal,
            slug=wanted["slug"],
            name=wanted["name"],
            admin=admin.get("username", ""),
            admin_password=admin.get("password", ""),
        )
        return answer(TenantSerializer(tenant).data, status=201)


class TenantDetail(MemberView):
    needs = {"GET": Action.VIEW, "PATCH": Action.MANAGE}

    @operation("tenants_get", "One tenant", tag=TAG, response=TenantSerializer)
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer(TenantSerializer(self.tenant).data)

    @operation(
        "tenants_change",
        "Rename a tenant",
        tag=TAG,
        request=ChangeTenantSerializer,
        response=TenantSerializer,
        description="Its short name stays.",
    )
    def patch(self, request: HttpRequest) -> HttpResponse:
        name = self.valid(ChangeTenantSerializer)["name"]
        tenant = rename_tenant(principal=self.principal, tenant=self.tenant, name=name)
        return answer(TenantSerializer(tenant).data)


class TenantPartView(TenantView):
    """Looks up what belongs to the tenant; another tenant's is a 404."""

    def space_of(self, space_id: str | None) -> Space | None:
        if space_id is None:
            return None
        space = Space.objects.filter(pk=space_id, tenant=self.tenant).first()
        if space is None:
            raise InvalidRequest("This tenant has no such space; look at its list.")
        return space


class Members(TenantPartView):
    needs = {"GET": Action.MANAGE, "POST": Action.MANAGE}
    creates = True

    @operation(
        "members_list",
        "Who is in a tenant, in which role",
        tag=TAG,
        response=MemberSerializer,
        many=True,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = Membership.objects.filter(tenant=self.tenant).select_related("user")
        return page_of(request, rows, MemberSerializer)

    @operation(
        "members_add",
        "Give a person a role",
        tag=TAG,
        request=NewMemberSerializer,
        response=MemberSerializer,
        status=201,
        idempotent=True,
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewMemberSerializer)
        member = add_member(
            principal=self.principal,
            tenant=self.tenant,
            username=wanted["username"],
            role=wanted["role"],
            space=self.space_of(wanted["space_id"]),
            password=wanted["password"],
        )
        return answer(MemberSerializer(member).data, status=201)


class MemberDetail(TenantPartView):
    needs = {"GET": Action.MANAGE, "PATCH": Action.MANAGE, "DELETE": Action.MANAGE}

    @operation("members_get", "One member", tag=TAG, response=MemberSerializer)
    def get(self, request: HttpRequest, member: int) -> HttpResponse:
        return answer(MemberSerializer(self._member(member)).data)

    @operation(
        "members_change",
        "Change a member's role",
        tag=TAG,
        request=ChangeRoleSerializer,
        response=MemberSerializer,
        errors=(409,),
    )
    def patch(self, request: HttpRequest, member: int) -> HttpResponse:
        role = self.valid(ChangeRoleSerializer)["role"]
        row = change_role(principal=self.principal, membership=self._member(member), role=role)
        return answer(MemberSerializer(row).data)

    @operation(
        "members_remove",
        "Take a role away",
        tag=TAG,
        status=204,
        errors=(409,),
        description="A tenant keeps at least one admin: taking the last one's role is a 409.",
    )
    def delete(self, request: HttpRequest, member: int) -> HttpResponse:
        remove_member(principal=self.principal, membership=self._member(member))
        return HttpResponse(status=204)

    def _member(self, pk: int) -> Membership:
        rows = Membership.objects.filter(tenant=self.tenant).select_related("user")
        row = rows.filter(pk=pk).first() if pk < 2**63 else None
        if row is None:
            raise Http404
        return row


class Keys(TenantPartView):
    needs = {"GET": Action.MANAGE, "POST": Action.MANAGE}
    creates = True

    @operation(
        "keys_list",
        "A tenant's API keys, without their secrets",
        tag=TAG,
        response=KeySerializer,
        many=True,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        return page_of(request, ApiKey.objects.filter(tenant=self.tenant), KeySerializer)

    @operation(
        "keys_issue",
        "Make an API key; its secret is in this answer only",
        tag=TAG,
        request=NewKeySerializer,
        response=IssuedKeySerializer,
        status=201,
        idempotent=True,
        description="Nobody grants more than they hold.",
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewKeySerializer)
        key, secret = issue_key(
            principal=self.principal,
            tenant=self.tenant,
            name=wanted["name"],
            scopes=wanted["scopes"],
            space=self.space_of(wanted["space_id"]),
            kind=wanted["kind"],
            expires_at=wanted["expires_at"],
        )
        return answer({**KeySerializer(key).data, "secret": secret}, status=201)


class KeyDetail(TenantPartView):
    needs = {"GET": Action.MANAGE, "DELETE": Action.MANAGE}

    @operation("keys_get", "One API key, without its secret", tag=TAG, response=KeySerializer)
    def get(self, request: HttpRequest, key: str) -> HttpResponse:
        return answer(KeySerializer(self._key(key)).data)

    @operation(
        "keys_revoke",
        "Revoke an API key",
        tag=TAG,
        response=KeySerializer,
        description="Idempotent. Every process refuses it within five seconds.",
    )
    def delete(self, request: HttpRequest, key: str) -> HttpResponse:
        row = revoke_key(principal=self.principal, key=self._key(key))
        forget_keys()
        return answer(KeySerializer(row).data)

    def _key(self, pk: str) -> ApiKey:
        row = ApiKey.objects.filter(tenant=self.tenant, pk=pk).first()
        if row is None:
            raise Http404
        return row
