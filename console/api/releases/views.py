"""Releases of a space: what serves, what differs, and switching between them."""

from __future__ import annotations

import django_filters
from django.http import Http404, HttpRequest, HttpResponse

from console.api.pages import filtered, page_of
from console.api.releases.serializers import (
    DiffSerializer,
    PromotionSerializer,
    ReasonSerializer,
    ReleaseSerializer,
    RolloutChangeSerializer,
    RolloutSerializer,
)
from console.api.schema import operation, parameter
from console.api.views import SpaceView, answer
from console.tenants.access import Action
from console.tenants.models import Space
from skills import services
from skills.models import Promotion, Release, ReleaseState

TAG = "releases"


class ReleaseFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=ReleaseState.choices)

    class Meta:
        model = Release
        fields: tuple[str, ...] = ()


class ReleaseView(SpaceView):
    def release(self, pk: str) -> Release:
        row = Release.objects.filter(space=self.space, pk=pk).select_related("space").first()
        if row is None:
            raise Http404
        return row


class Releases(ReleaseView):
    needs = {"GET": Action.VIEW}

    @operation(
        "releases_list",
        "The releases of a space, newest first",
        tag=TAG,
        response=ReleaseSerializer,
        many=True,
        filters=ReleaseFilter,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = Release.objects.filter(space=self.space).select_related("space")
        return page_of(request, filtered(ReleaseFilter, request, rows), ReleaseSerializer)


class ReleaseDetail(ReleaseView):
    needs = {"GET": Action.VIEW, "DELETE": Action.BUILD}

    @operation("releases_get", "One release", tag=TAG, response=ReleaseSerializer)
    def get(self, request: HttpRequest, release: str) -> HttpResponse:
        return answer(ReleaseSerializer(self.release(release)).data)

    @operation(
        "releases_delete",
        "Delete a release's snapshot",
        tag=TAG,
        response=ReleaseSerializer,
        status=202,
        errors=(409,),
        description=(
            "Idempotent. A worker does it; the row stays as history. 409 while the release serves, is "
            "the candidate, carries running sessions or is being built upon."
        ),
    )
    def delete(self, request: HttpRequest, release: str) -> HttpResponse:
        row = services.delete_release(release=self.release(release), actor=self.actor)
        return answer(ReleaseSerializer(self.release(row.pk)).data, status=202)


class ReleaseDiff(ReleaseView):
    needs = {"GET": Action.VIEW}

    @operation(
        "releases_diff",
        "What changed from another release to this one",
        tag=TAG,
        response=DiffSerializer,
        parameters=[
            parameter(
                "against",
                description="A release of this space; the base template if not given.",
            )
        ],
    )
    def get(self, request: HttpRequest, release: str) -> HttpResponse:
        other = request.GET.get("against")
        before = self.release(other) if other else None
        return answer(services.diff_releases(before=before, after=self.release(release)).to_json())


class RollBack(ReleaseView):
    needs = {"POST": Action.BUILD}

    @operation(
        "releases_roll_back",
        "Point the space at this release",
        tag=TAG,
        request=ReasonSerializer,
        response=ReleaseSerializer,
        errors=(409,),
        description="Idempotent. Running sessions follow as the space's rollout mode says.",
    )
    def post(self, request: HttpRequest, release: str) -> HttpResponse:
        reason = self.valid(ReasonSerializer)["reason"]
        row = self.release(release)
        services.roll_back(space=self.space, release=row, actor=self.actor, reason=reason)
        return answer(ReleaseSerializer(self.release(row.pk)).data)


class ReleaseRollout(ReleaseView):
    needs = {"PUT": Action.BUILD}

    @operation(
        "releases_roll_out",
        "Give this release to a share of new sessions first",
        tag=TAG,
        request=RolloutChangeSerializer,
        response=RolloutSerializer,
        errors=(409,),
        description="It becomes the space's candidate. Repeat it to change the share.",
    )
    def put(self, request: HttpRequest, release: str) -> HttpResponse:
        wanted = self.valid(RolloutChangeSerializer)
        services.start_rollout(
            space=self.space,
            release=self.release(release),
            percent=wanted["percent"],
            sessions=wanted["sessions"],
            actor=self.actor,
            reason=wanted["reason"],
        )
        return _rollout(self.space.pk)


class SpaceRollout(ReleaseView):
    needs = {"GET": Action.VIEW, "DELETE": Action.BUILD}

    @operation("rollout_get", "What new sessions get", tag=TAG, response=RolloutSerializer)
    def get(self, request: HttpRequest) -> HttpResponse:
        return _rollout(self.space.pk)

    @operation(
        "rollout_withdraw",
        "Withdraw the candidate",
        tag=TAG,
        response=RolloutSerializer,
        description="Idempotent.",
    )
    def delete(self, request: HttpRequest) -> HttpResponse:
        services.withdraw_candidate(space=self.space, actor=self.actor)
        return _rollout(self.space.pk)


class PromoteCandidate(ReleaseView):
    needs = {"POST": Action.BUILD}

    @operation(
        "rollout_promote",
        "Give the candidate to every session",
        tag=TAG,
        request=ReasonSerializer,
        response=RolloutSerializer,
        errors=(409,),
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        reason = self.valid(ReasonSerializer)["reason"]
        services.promote_candidate(space=self.space, actor=self.actor, reason=reason)
        return _rollout(self.space.pk)


class Promotions(ReleaseView):
    needs = {"GET": Action.VIEW}

    @operation(
        "promotions_list",
        "What served when, and why it was switched",
        tag=TAG,
        response=PromotionSerializer,
        many=True,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        return page_of(request, Promotion.objects.filter(space=self.space), PromotionSerializer)


def _rollout(space_id: str) -> HttpResponse:
    space = Space.objects.get(pk=space_id)
    return answer(
        {
            "current_release_id": space.current_release_id,
            "candidate_release_id": space.candidate_release_id,
            "percent": space.rollout_percent,
            "sessions": space.rollout_sessions,
        }
    )
