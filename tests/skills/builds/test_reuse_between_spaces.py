"""Two spaces with the same skills share a snapshot, and nobody loses it while the other needs it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from console.tenants.models import Space
from skills import reaper, services
from skills.models import Build, Release, ReleaseState, SkillVersion
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install, make_space


@pytest.fixture
def sibling(space: Space) -> Space:
    """Of the same tenant, on the same backend."""
    return Space.objects.create(
        tenant=space.tenant, slug="sibling", name="Sibling", backend=space.backend
    )


def both(space: Space, sibling: Space) -> tuple[Release, Release]:
    version = add_skill(space, "one")
    first, second = install(space, version).result, install(sibling, version).result
    assert first is not None
    assert second is not None
    return first, second


def test_the_second_space_needs_no_sandbox(
    space: Space, sibling: Space, account: FileProvider
) -> None:
    first, second = both(space, sibling)
    assert len(account.created) == 1
    assert second.snapshot_id == first.snapshot_id
    assert (second.space, second.generation, second.packages) == (sibling, 1, first.packages)
    assert Space.objects.get(pk=sibling.pk).current_release == second


def test_a_shared_snapshot_goes_with_its_last_release(
    space: Space, sibling: Space, account: FileProvider
) -> None:
    first, second = both(space, sibling)
    other = add_skill(space, "other")
    for one in (space, sibling):
        fresh = Space.objects.get(pk=one.pk)
        services.request_build(space=fresh, actor=ACTOR, versions=[other])
    for build in Build.objects.unfinished():
        from tests.skills.world import run

        run(build)
    services.delete_release(release=first, actor=ACTOR)
    assert async_to_sync(reaper.delete_snapshot)(first.pk)
    assert second.snapshot_id in account.snapshots
    second.refresh_from_db()
    assert second.usable_on(sibling.backend)
    services.delete_release(release=second, actor=ACTOR)
    assert async_to_sync(reaper.delete_snapshot)(second.pk)
    assert second.snapshot_id not in account.snapshots


def test_a_release_that_is_being_deleted_lends_nothing(
    space: Space, sibling: Space, account: FileProvider
) -> None:
    version = add_skill(space, "one")
    first = install(space, version).result
    Release.objects.filter(pk=getattr(first, "pk", "")).update(delete_requested_at=timezone.now())
    assert install(sibling, version).state == "succeeded"
    assert len(account.created) == 2


def test_another_tenant_shares_nothing(space: Space, account: FileProvider) -> None:
    stranger = make_space("simulated", path=space.backend.settings["path"])

    def same(of: Space) -> SkillVersion:
        return add_skill(of, "one")

    install(space, same(space))
    install(stranger, same(stranger))
    assert len(account.snapshots) == 2


def test_the_sweep_keeps_what_two_spaces_share(
    space: Space, sibling: Space, account: FileProvider
) -> None:
    first, second = both(space, sibling)
    report = async_to_sync(reaper.reconcile)(now=timezone.now() + timedelta(days=3))
    assert (report.deleted_releases, report.unknown_snapshots, report.broken_releases) == (
        [],
        [],
        [],
    )
    del account.snapshots[first.snapshot_id]
    account._save()
    report = async_to_sync(reaper.reconcile)(now=timezone.now() + timedelta(days=3))
    assert set(report.broken_releases) == {first.pk, second.pk}
    assert Release.objects.filter(state=ReleaseState.BROKEN).count() == 2
