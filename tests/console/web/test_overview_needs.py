"""What needs somebody: each thing is named, leads to its mend, and goes when it is mended; the worst first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditChain
from console.audit.services import SYSTEM
from console.fleet.models import Backend, ReconcileReport, Session, Verification
from console.policies.models import NetworkPolicyRevision
from console.policies.services import current_policy, save_policy
from console.tenants.models import ApiKey, Space, Tenant, User
from console.web.overview.needs import Need
from sandboxes.network import CLOSED
from skills.models import Build, BuildState, Release, ReleaseState
from tests.console.cast import World

Change = Callable[[World], Any]


@pytest.fixture
def calm(world: World) -> World:
    """A world in which nothing needs anybody."""
    now = timezone.now()
    Backend.objects.filter(pk=world.backend.pk).update(checked_at=now)
    Verification.objects.update(state="passed", finished_at=now)
    Release.objects.update(state=ReleaseState.ACTIVE)
    Space.objects.filter(pk=world.space.pk).update(current_release=world.release)
    Build.objects.update(state=BuildState.SUCCEEDED)
    Session.objects.update(policy=current_policy(world.space), release=world.release)
    ApiKey.objects.update(expires_at=now + timedelta(days=30))
    ReconcileReport.objects.update(finished_at=now)
    return world


def needs(client: Client, world: World, person: str = "admin") -> list[Need]:
    client.force_login(world.people[person])
    found: list[Need] = client.get("/").context["dashboard"].needs
    return found


def ago(**past: float) -> Any:
    return timezone.now() - timedelta(**past)


def backend(**values: Any) -> Change:
    return lambda world: Backend.objects.filter(pk=world.backend.pk).update(**values)


def build(**values: Any) -> Change:
    return lambda world: Build.objects.filter(pk=world.build.pk).update(**values)


def verification(**values: Any) -> Change:
    return lambda world: Verification.objects.update(**values)


def orphans(age_s: int) -> Change:
    return lambda world: ReconcileReport.objects.update(orphaned=3, oldest_orphan_s=age_s)


def older_policy(world: World) -> None:
    save_policy(space=world.space, policy=CLOSED, actor=SYSTEM)


def older_release(rollout: str) -> Change:
    def change(world: World) -> None:
        Session.objects.update(release=None)
        Space.objects.update(rollout=rollout)

    return change


def moved(world: World) -> None:
    """The backend, its release and its session to another account, in which nothing was verified."""
    Backend.objects.filter(pk=world.backend.pk).update(settings={"socket": "/elsewhere"})
    here = Backend.objects.get(pk=world.backend.pk).fingerprint
    Release.objects.update(fingerprint=here)


THINGS: list[tuple[str, str, Change, str]] = [
    ("backend-failing", "bad", lambda w: backend(check_error="No answer.")(w), "backend"),
    ("backend-unchecked", "warn", lambda w: backend(checked_at=ago(hours=2))(w), "backend"),
    ("backend-cordoned", "info", lambda w: backend(cordoned_at=ago(hours=2))(w), "backend"),
    ("verification-failed", "warn", verification(state="failed"), "verification"),
    ("verification-moved", "warn", moved, "backend"),
    (
        "verification-stale",
        "info",
        lambda w: verification(finished_at=ago(days=31))(w),
        "backend",
    ),
    (
        "release-broken",
        "bad",
        lambda w: (Release.objects.update(state="broken"), Session.objects.update(release=None)),
        "release",
    ),
    (
        "release-silent",
        "bad",
        lambda w: (
            Release.objects.update(fingerprint="other"),
            Session.objects.update(release=None),
        ),
        "release",
    ),
    ("build-failed", "bad", build(state=BuildState.FAILED), "build"),
    (
        "build-stuck",
        "bad",
        lambda w: build(state="running", finished_at=None, heartbeat_at=ago(minutes=5))(w),
        "build",
    ),
    (
        "build-stuck",
        "bad",
        lambda w: build(state="queued", finished_at=None, created_at=ago(minutes=5))(w),
        "build",
    ),
    ("orphans-old", "warn", orphans(20_000), "reconcile-report"),
    (
        "key-expiring",
        "warn",
        lambda w: ApiKey.objects.update(expires_at=timezone.now() + timedelta(days=3)),
        "keys",
    ),
    (
        "two-step-missing",
        "warn",
        lambda w: Tenant.objects.update(two_step_required=True),
        "members",
    ),
    (
        "audit-broken",
        "bad",
        lambda w: AuditChain.objects.filter(key=w.tenant.pk).update(
            broken=4, verified_at=timezone.now()
        ),
        "audit",
    ),
    ("policy-pending", "info", older_policy, "network"),
    ("sessions-drifted", "info", older_release("next_turn"), "space-sessions"),
    ("sessions-drifted", "info", older_release("new_session"), "space-sessions"),
    (
        "deletion-waits",
        "bad",
        lambda w: Space.objects.update(
            delete_requested_at=timezone.now(), delete_problem="The backend is away."
        ),
        "space",
    ),
]


def address(route: str, world: World) -> str:
    ids = {
        "backend": world.backend.pk,
        "verification": world.verification.pk,
        "release": world.release.pk,
        "build": world.build.pk,
        "reconcile-report": world.report.pk,
        "network": world.space.pk,
        "space": world.space.pk,
        "space-sessions": world.space.pk,
    }
    asked = "?drift=release" if route == "space-sessions" else ""
    return reverse(f"web:{route}", args=[ids[route]] if route in ids else []) + asked


def test_where_all_is_well_nothing_is_asked(calm: World, client: Client) -> None:
    assert needs(client, calm) == []
    assert b"Nothing waits for you." in client.get("/").content


@pytest.mark.parametrize(("code", "rank", "change", "route"), THINGS)
def test_each_thing_is_named_with_the_page_of_its_mend(
    code: str, rank: str, change: Change, route: str, calm: World, client: Client
) -> None:
    change(calm)
    if code == "two-step-missing":
        # Who owes it themselves is led to it before they see anything: another one looks.
        from console.tenants.account_models import TotpDevice

        TotpDevice.objects.create(
            user=calm.people["admin"], name="app", confirmed=True, secret={"key": "00"}
        )

    (need,) = needs(client, calm)

    assert (need.code, need.rank, need.url) == (code, rank, address(route, calm))
    assert client.get(need.url).status_code == 200
    assert "%" not in need.sentence


@pytest.mark.parametrize(
    "change",
    [
        lambda w: Build.objects.update(state="failed", finished_at=ago(days=8)),
        lambda w: Build.objects.create(space=w.space, state="succeeded", finished_at=ago(hours=0)),
        orphans(4000),
        lambda w: ApiKey.objects.update(expires_at=ago(days=1)),
        lambda w: ApiKey.objects.update(
            expires_at=timezone.now() + timedelta(days=1), revoked_at=timezone.now()
        ),
        lambda w: ReconcileReport.objects.update(
            oldest_orphan_s=90_000, orphaned=1, aborted="It broke off."
        ),
        lambda w: Session.objects.update(state="destroyed", policy=None, release=None),
        lambda w: Session.objects.update(created_by="gateway, key x", policy=None, release=None),
        lambda w: build(state="running", finished_at=None, heartbeat_at=ago(seconds=5))(w),
    ],
)
def test_what_needs_nobody_is_not_named(change: Change, calm: World, client: Client) -> None:
    change(calm)

    assert needs(client, calm) == []


def test_a_build_that_is_tried_again_is_not_named(calm: World, client: Client) -> None:
    Build.objects.update(state=BuildState.FAILED)
    assert [need.code for need in needs(client, calm)] == ["build-failed"]

    Build.objects.create(space=calm.space, state=BuildState.QUEUED)

    assert needs(client, calm) == []


def test_the_worst_comes_first_and_many_are_folded(calm: World, client: Client) -> None:
    ApiKey.objects.bulk_create(
        ApiKey(
            tenant=calm.tenant,
            name=f"robot {n}",
            prefix=f"sky_{n}",
            secret_sha256="0" * 64,
            expires_at=timezone.now() + timedelta(days=1),
        )
        for n in range(7)
    )
    older_policy(calm)
    Build.objects.update(state=BuildState.FAILED)

    found = needs(client, calm)

    assert [need.rank for need in found] == ["bad", *["warn"] * 7, "info"]
    page = client.get("/").content.decode()
    assert "4 more" in page
    assert page.count("robot") == 7


def test_a_session_of_a_candidate_does_not_lag(calm: World, client: Client) -> None:
    candidate = Release.objects.create(
        space=calm.space,
        generation=2,
        backend=calm.backend,
        fingerprint=calm.backend.fingerprint,
        state=ReleaseState.ACTIVE,
        planned_name="candidate",
        snapshot_id="snap-2",
    )
    Space.objects.filter(pk=calm.space.pk).update(candidate_release=candidate)
    Session.objects.update(release=candidate)

    assert needs(client, calm) == []


def test_a_broken_log_is_told_to_who_may_read_it(calm: World, client: Client) -> None:
    AuditChain.objects.update(broken=4)

    assert needs(client, calm, "owner") == []
    User.objects.filter(pk=calm.people["admin"].pk).update(is_superuser=True)
    AuditChain.objects.create(key="", broken=2)
    found = [need.sentence for need in needs(client, calm)]
    assert ["the platform" in sentence for sentence in found] == [True, False]


def test_who_may_mend_is_told_how_and_others_what_there_is(calm: World, client: Client) -> None:
    older_policy(calm)

    assert [need.mend for need in needs(client, calm, "owner")] == ["Apply it now"]
    assert [need.mend for need in needs(client, calm, "viewer")] == ["Look at it"]
    assert NetworkPolicyRevision.objects.count() == 2
