"""The sweep that compares provider and ledger: what it deletes, what it only reports, what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from console.fleet.models import Session
from console.tenants.models import Space
from sandboxes.errors import Unavailable
from sandboxes.network import OPEN
from sandboxes.types import CreateRequest, SnapshotInfo, TimeoutPolicy
from skills import reaper, services
from skills.build.snapshots import all_snapshots, has_name
from skills.models import Release, ReleaseState
from skills.reaper import SweepReport
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install

LATER = timedelta(hours=25)


def reconcile(space: Space, after: timedelta = LATER) -> SweepReport:
    return async_to_sync(reaper.reconcile)(now=timezone.now() + after)


def two_releases(space: Space) -> tuple[Release, Release]:
    first = install(space, add_skill(space, "one")).result
    second = install(space, add_skill(space, "two")).result
    assert first is not None
    assert second is not None
    return first, second


def state(release: Release) -> str:
    return Release.objects.get(pk=release.pk).state


def test_a_superseded_release_is_pruned_after_a_day(space: Space, account: FileProvider) -> None:
    old, new = two_releases(space)
    assert reconcile(space, timedelta(hours=23)).deleted_releases == []
    assert reconcile(space).deleted_releases == [old.pk]
    assert set(account.snapshots) == {new.snapshot_id}


def test_a_long_session_life_delays_pruning(space: Space) -> None:
    Space.objects.filter(pk=space.pk).update(idle_timeout_s=48 * 3600)
    two_releases(space)
    assert reconcile(space, timedelta(hours=48)).deleted_releases == []
    assert len(reconcile(space, timedelta(hours=50)).deleted_releases) == 1


def test_a_release_with_a_running_session_or_as_candidate_stays(space: Space) -> None:
    old, _ = two_releases(space)
    session = Session.objects.create(
        space=space, session_id="chat", backend=space.backend, release=old
    )
    assert reconcile(space).deleted_releases == []
    session.delete()
    services.start_rollout(space=space, release=old, percent=1, actor=ACTOR)
    assert reconcile(space).deleted_releases == []


def test_snapshots_that_no_row_knows_are_reported_and_kept(
    space: Space, account: FileProvider
) -> None:
    two_releases(space)
    foreign = _freeze(account, "somebody-elses")
    report = reconcile(space)
    assert report.unknown_snapshots == [foreign]
    assert foreign in account.snapshots


def test_a_second_snapshot_of_a_planned_name_is_deleted(
    space: Space, account: FileProvider
) -> None:
    _, new = two_releases(space)
    twin = _freeze(account, f"team/{new.planned_name}:latest")
    report = reconcile(space)
    assert report.deleted_snapshots == [twin]
    assert new.snapshot_id in account.snapshots


def test_a_lost_snapshot_breaks_its_release_and_a_found_one_mends_it(
    space: Space, account: FileProvider
) -> None:
    _, new = two_releases(space)
    lost = account.snapshots.pop(new.snapshot_id)
    account._save()
    assert reconcile(space).broken_releases == [new.pk]
    assert state(new) == ReleaseState.BROKEN
    assert not Release.objects.get(pk=new.pk).usable_on(space.backend)
    account.snapshots[new.snapshot_id] = lost
    account._save()
    assert reconcile(space).mended_releases == [new.pk]
    assert state(new) == ReleaseState.ACTIVE


def test_a_broken_release_is_rebuilt_in_one_step(space: Space, account: FileProvider) -> None:
    from tests.skills.world import run

    _, new = two_releases(space)
    del account.snapshots[new.snapshot_id]
    account._save()
    reconcile(space)
    build = run(services.rebuild(space=Space.objects.get(pk=space.pk), actor=ACTOR))
    assert build.state == "succeeded"
    assert build.result is not None
    assert [str(i.version) for i in build.result.items.all()] == ["one #1", "two #1"]
    assert Space.objects.get(pk=space.pk).current_release == build.result


def test_a_release_that_was_just_made_may_be_missing_from_the_list(
    space: Space, account: FileProvider
) -> None:
    _, new = two_releases(space)
    del account.snapshots[new.snapshot_id]
    account._save()
    assert reconcile(space, timedelta(0)).broken_releases == []


def test_other_credentials_leave_everything_alone(space: Space, account: FileProvider) -> None:
    old, new = two_releases(space)
    space.backend.secrets = {"api_key": "another-key"}
    space.backend.save()
    account.snapshots.clear()
    account._save()
    report = reconcile(space)
    assert report.skipped_backends == [space.backend.name]
    assert (report.broken_releases, report.deleted_releases) == ([], [])
    assert (state(old), state(new)) == (ReleaseState.SUPERSEDED, ReleaseState.ACTIVE)


def test_a_provider_that_does_not_answer_costs_nothing(space: Space, account: FileProvider) -> None:
    old, new = two_releases(space)
    account.fail_next("snapshots.list", Unavailable("Down."))
    report = reconcile(space)
    assert report.failures == ["backend: Down."]
    assert (state(old), state(new)) == (ReleaseState.SUPERSEDED, ReleaseState.ACTIVE)


def test_lost_sandboxes_of_finished_builds_are_deleted_and_unknown_ones_kept(
    space: Space, account: FileProvider
) -> None:
    build = install(space, add_skill(space, "one"))
    lost = _start(account, space, build.pk)
    unknown = _start(account, space, "bld_unknown")
    session = _start(account, space, "")
    report = reconcile(space)
    assert report.deleted_sandboxes == [lost]
    assert set(account.sandboxes) == {unknown, session}


async def test_listing_ends_though_the_provider_repeats_its_pages() -> None:
    class Looping:
        def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
            return self._pages()

        async def _pages(self) -> AsyncIterator[SnapshotInfo]:
            while True:
                yield SnapshotInfo(id="a")
                yield SnapshotInfo(id="b")

    client = type("Client", (), {"snapshots": Looping()})()
    assert [snapshot.id async for snapshot in all_snapshots(client)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("skillyard-x-g1-abc", True),
        ("team/skillyard-x-g1-abc", True),
        ("weknora-skill/skillyard-x-g1-abc:latest", True),
        ("skillyard-x-g1-abcd", False),
        ("my-skillyard-x-g1-abc", False),
    ],
)
def test_a_planned_name_is_recognised_exactly(name: str, expected: bool) -> None:
    assert has_name(SnapshotInfo(id="s", names=(name,)), "skillyard-x-g1-abc") is expected


def _freeze(account: FileProvider, name: str) -> str:
    sandbox = account.start(
        CreateRequest(template="base", network=OPEN, timeout=TimeoutPolicy(timeout_s=9))
    )
    info = account.snapshot(sandbox.id, name)
    account.vanish(sandbox.id)
    account._save()
    return info.id


def _start(account: FileProvider, space: Space, build_id: str) -> str:
    metadata = {"skillyard_tenant": space.tenant_id, "skillyard_space": space.pk}
    if build_id:
        metadata["skillyard_build"] = build_id
    sandbox = account.start(
        CreateRequest(
            template="base",
            network=OPEN,
            timeout=TimeoutPolicy(timeout_s=1e6),
            metadata=metadata,
        )
    )
    account._save()
    return sandbox.id
