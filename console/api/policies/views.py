"""A space's network policy: read, replace, test, history, apply now."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from console.api.errors import ApiError
from console.api.pages import page_of
from console.api.schema import operation, parameter
from console.api.views import SpaceView, answer
from console.fleet.policies import apply_now, drifted_sessions, try_host
from console.fleet.runtime import shared_runtime
from console.policies.hosts import judge
from console.policies.models import NetworkPolicyRevision
from console.policies.services import current_policy, save_policy
from console.tenants.access import Action
from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.network import NetworkPolicy, Verdict
from sandboxes.network_advice import advice, limits

TAG = "network policy"


class PolicyFieldsSerializer(serializers.Serializer[Any]):
    outbound = serializers.BooleanField(help_text="May it reach what no list names?")
    inbound = serializers.BooleanField(help_text="May its ports be reached without a token?")
    allow = serializers.ListField(
        child=serializers.CharField(max_length=300, allow_blank=True),
        required=False,
        default=list,
        help_text="IPv4 addresses, CIDR blocks, domains, *.domain. Allow beats deny.",
    )
    deny = serializers.ListField(
        child=serializers.CharField(max_length=300, allow_blank=True),
        required=False,
        default=list,
        help_text="IPv4 addresses and CIDR blocks.",
    )


class NewPolicySerializer(PolicyFieldsSerializer):
    reason = serializers.CharField(
        max_length=300, required=False, allow_blank=True, default="", help_text="For the history."
    )


class RevisionSerializer(serializers.ModelSerializer[NetworkPolicyRevision]):
    allow = serializers.ListField(child=serializers.CharField())
    deny = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = NetworkPolicyRevision
        fields = ("number", "outbound", "inbound", "allow", "deny", "reason", "created_at")


class PolicySerializer(RevisionSerializer):
    drifted_sessions = serializers.IntegerField(
        help_text="Running sessions whose sandbox has an older revision."
    )
    advice = serializers.ListField(
        child=serializers.CharField(), help_text="Entries without effect, and risks."
    )

    class Meta(RevisionSerializer.Meta):
        fields = (*RevisionSerializer.Meta.fields, "drifted_sessions", "advice")  # type: ignore[assignment]


class NewTestSerializer(serializers.Serializer[Any]):
    host = serializers.CharField(max_length=2000, help_text="A name, an IPv4 address or a URL.")
    policy = PolicyFieldsSerializer(required=False, help_text="Instead of the space's present one.")
    really = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Also try it from a throw-away sandbox; needs the right `policy`.",
    )


class TrialSerializer(serializers.Serializer[Any]):
    reached = serializers.BooleanField()
    answer = serializers.CharField()


class TestSerializer(serializers.Serializer[Any]):
    host = serializers.CharField()
    addresses = serializers.ListField(child=serializers.CharField())
    verdict = serializers.ChoiceField(choices=[verdict.value for verdict in Verdict])
    rule = serializers.CharField(help_text="The deciding entry, `outbound` or `built-in`.")
    trial = TrialSerializer(allow_null=True)


class AppliedSerializer(serializers.Serializer[Any]):
    revision = serializers.IntegerField()
    updated = serializers.IntegerField(help_text="Sessions that got it in place.")
    stale = serializers.IntegerField(help_text="Sessions that get it at their next turn.")
    failed = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))


class Policy(SpaceView):
    needs = {"GET": Action.VIEW, "PUT": Action.POLICY}

    @operation(
        "policy_get",
        "The network policy that holds",
        tag=TAG,
        response=PolicySerializer,
        parameters=[parameter("If-None-Match", where="header", description="An ETag.")],
        also={304: "It still has that ETag."},
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        revision = current_policy(self.space)
        if _etag(revision) in _tags(request.headers.get("If-None-Match", "")):
            return HttpResponse(status=304, headers={"ETag": _etag(revision)})
        return self._answer(revision)

    @operation(
        "policy_put",
        "Replace the network policy",
        tag=TAG,
        request=NewPolicySerializer,
        response=PolicySerializer,
        errors=(409, 412, 428),
        parameters=[
            parameter("If-Match", where="header", description="The ETag that was edited, or *.")
        ],
        description=(
            "Appends a revision, for sandboxes that are made from now on; `apply` brings it to running "
            "ones. 412 if it was changed meanwhile, 428 without If-Match."
        ),
    )
    def put(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewPolicySerializer)
        policy = _policy(wanted)
        known = self.space.backend.capabilities
        if known and (unable := limits(policy, Capabilities(**known))):
            raise ApiError("unsupported", " ".join(unable), details={"problems": unable})
        try:
            saved = save_policy(
                space=self.space,
                policy=policy,
                actor=self.actor,
                reason=wanted["reason"],
                expected_number=_expected(request),
            )
        except Conflict as conflict:
            raise ApiError("precondition_failed", conflict.message) from conflict
        return self._answer(saved)

    def _answer(self, revision: NetworkPolicyRevision) -> HttpResponse:
        data = {
            **RevisionSerializer(revision).data,
            "drifted_sessions": drifted_sessions(self.space, revision).count(),
            "advice": [item.sentence for item in advice(revision.policy())],
        }
        return answer(data, headers={"ETag": _etag(revision)})


class PolicyHistory(SpaceView):
    needs = {"GET": Action.VIEW}

    @operation(
        "policy_history",
        "Every revision, newest first",
        tag=TAG,
        response=RevisionSerializer,
        many=True,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = NetworkPolicyRevision.objects.filter(space=self.space)
        return page_of(request, rows, RevisionSerializer)


class PolicyTest(SpaceView):
    needs = {"POST": Action.VIEW}

    @operation(
        "policy_test",
        "Would a sandbox reach this host?",
        tag=TAG,
        request=NewTestSerializer,
        response=TestSerializer,
        errors=(409, 502, 504),
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewTestSerializer)
        if "policy" in wanted:
            policy = _policy(wanted["policy"])
        else:
            policy = (await sync_to_async(current_policy)(self.space)).policy()
        judged = await sync_to_async(judge, thread_sensitive=False)(policy, wanted["host"])
        trial = None
        if wanted["really"]:
            self.principal.require(
                Action.POLICY, tenant_id=self.space.tenant_id, space_id=self.space.pk
            )
            tried = await try_host(
                runtime=shared_runtime(),
                space=self.space,
                policy=policy,
                target=wanted["host"],
                actor=self.actor,
            )
            trial = {"reached": tried.reached, "answer": tried.answer}
        return answer(
            {
                "host": judged.host,
                "addresses": list(judged.addresses),
                "verdict": judged.decision.verdict.value,
                "rule": judged.decision.rule,
                "trial": trial,
            }
        )


class PolicyApply(SpaceView):
    needs = {"POST": Action.POLICY}

    @operation(
        "policy_apply",
        "Bring running sessions to the policy that holds",
        tag=TAG,
        response=AppliedSerializer,
        errors=(409, 502, 504),
        description="In place where the backend can, else at their next turn. Idempotent.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        revision = await sync_to_async(current_policy)(self.space)
        report = await apply_now(
            runtime=shared_runtime(), space=self.space, revision=revision, actor=self.actor
        )
        failed = [{"session_id": session, "message": why} for session, why in report.failed]
        return answer(
            {
                "revision": revision.number,
                "updated": report.updated,
                "stale": report.stale,
                "failed": failed,
            }
        )


def _policy(fields: dict[str, Any]) -> NetworkPolicy:
    return NetworkPolicy.parse(
        outbound=fields["outbound"],
        inbound=fields["inbound"],
        allow=fields["allow"],
        deny=fields["deny"],
    )


def _etag(revision: NetworkPolicyRevision) -> str:
    return f'"{revision.number}"'


def _tags(header: str) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in header.split(",") if tag.strip()]


def _expected(request: HttpRequest) -> int | None:
    """The revision number that If-Match names; None for `*`."""
    tags = _tags(request.headers.get("If-Match", ""))
    if not tags:
        raise ApiError(
            "precondition_required",
            "Send If-Match with the ETag of the policy that you edited, or * to replace any.",
        )
    if tags == ["*"]:
        return None
    number = tags[0].strip('"')
    if len(tags) != 1 or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidRequest('If-Match takes one ETag, such as "3", or *.')
    return int(number)
