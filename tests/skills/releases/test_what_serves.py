"""Roll back, roll out, delete: what serves, and what may not be deleted."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync

from console.audit.models import AuditEntry
from console.fleet.models import Session
from console.tenants.models import Space
from sandboxes.errors import Conflict, InvalidRequest
from skills import ports, reaper, services
from skills.build import ledger
from skills.models import Promotion, PromotionKind, Release, ReleaseState
from skills.rollout import bucket, release_for_session
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install, make_space


@pytest.fixture
def releases(space: Space) -> tuple[Release, Release]:
    """The superseded and the serving one."""
    first = install(space, add_skill(space, "one")).result
    second = install(space, add_skill(space, "two")).result
    assert first is not None
    assert second is not None
    space.refresh_from_db()
    for release in (first, second):
        release.refresh_from_db()
    return first, second


def test_a_new_release_supersedes_the_old_one(releases: tuple[Release, Release]) -> None:
    old, new = releases
    assert (old.state, new.state) == (ReleaseState.SUPERSEDED, ReleaseState.ACTIVE)
    assert (old.generation, new.generation, new.parent) == (1, 2, old)
    assert old.superseded_at is not None


def test_rolling_back_moves_the_pointer_with_a_reason(
    space: Space, releases: tuple[Release, Release]
) -> None:
    old, new = releases
    promotion = services.roll_back(space=space, release=old, actor=ACTOR, reason="it broke")
    assert promotion is not None
    assert (promotion.kind, promotion.reason) == (PromotionKind.ROLL_BACK, "it broke")
    space.refresh_from_db()
    new.refresh_from_db()
    assert space.current_release == old
    assert new.state == ReleaseState.SUPERSEDED
    assert services.roll_back(space=space, release=old, actor=ACTOR) is None
    assert AuditEntry.objects.filter(action="release.roll_back", actor="tester").count() == 1


def test_rolling_back_to_what_cannot_start_is_refused(
    space: Space, releases: tuple[Release, Release]
) -> None:
    old, new = releases
    ledger.mark_broken(old, problem="Its snapshot is gone.")
    with pytest.raises(Conflict, match=r"broken: Its snapshot is gone\. Rebuild it"):
        services.roll_back(space=space, release=old, actor=ACTOR)
    space.backend.secrets = {"api_key": "another"}
    space.backend.save()
    with pytest.raises(Conflict, match="another provider account"):
        services.roll_back(space=space, release=new, actor=ACTOR)


def test_a_release_of_another_space_is_not_known(releases: tuple[Release, Release]) -> None:
    other = make_space("simulated", path="elsewhere")
    with pytest.raises(InvalidRequest, match="no such release"):
        services.roll_back(space=other, release=releases[0], actor=ACTOR)


def test_a_candidate_goes_to_named_sessions_and_to_a_share(
    space: Space, releases: tuple[Release, Release]
) -> None:
    old, _ = releases
    services.start_rollout(space=space, release=old, percent=30, sessions=["vip"], actor=ACTOR)
    space.refresh_from_db()
    assert release_for_session(space, "vip") == old
    names = [f"chat-{n}" for n in range(2000)]
    share = sum(release_for_session(space, name) == old for name in names)
    assert 500 < share < 700
    space.rollout_percent = 60
    assert all(release_for_session(space, n) == old for n in names if bucket(old.pk, n) < 30)
    services.promote_candidate(space=space, actor=ACTOR)
    space.refresh_from_db()
    assert (space.current_release, space.candidate_release) == (old, None)
    assert (space.rollout_percent, space.rollout_sessions) == (0, [])


def test_a_withdrawn_candidate_is_superseded(
    space: Space, releases: tuple[Release, Release]
) -> None:
    old, new = releases
    services.start_rollout(space=space, release=old, percent=1, actor=ACTOR)
    old.refresh_from_db()
    assert old.state == ReleaseState.ACTIVE
    assert services.withdraw_candidate(space=space, actor=ACTOR) is not None
    assert services.withdraw_candidate(space=space, actor=ACTOR) is None
    old.refresh_from_db()
    assert old.state == ReleaseState.SUPERSEDED
    space.refresh_from_db()
    assert release_for_session(space, "chat") == new


def test_a_candidate_that_cannot_start_is_passed_over(
    space: Space, releases: tuple[Release, Release]
) -> None:
    old, new = releases
    services.start_rollout(space=space, release=old, percent=100, actor=ACTOR)
    ledger.mark_broken(old, problem="gone")
    space = Space.objects.get(pk=space.pk)
    assert release_for_session(space, "chat") == new


def test_a_build_may_end_as_a_candidate(space: Space, releases: tuple[Release, Release]) -> None:
    build = install(space, add_skill(space, "three"), rollout_percent=10, rollout_sessions=["vip"])
    space.refresh_from_db()
    assert (space.current_release, space.candidate_release) == (releases[1], build.result)
    assert (space.rollout_percent, space.rollout_sessions) == (10, ["vip"])


def test_what_is_needed_is_not_deleted(space: Space, releases: tuple[Release, Release]) -> None:
    old, new = releases
    with pytest.raises(Conflict, match="switch to another"):
        services.delete_release(release=new, actor=ACTOR)
    services.start_rollout(space=space, release=old, percent=1, actor=ACTOR)
    with pytest.raises(Conflict, match="withdraw it"):
        services.delete_release(release=old, actor=ACTOR)
    services.withdraw_candidate(space=space, actor=ACTOR)
    session = Session.objects.create(
        space=space, session_id="chat", backend=space.backend, release=old
    )
    with pytest.raises(Conflict, match="1 running session"):
        services.delete_release(release=old, actor=ACTOR)
    session.state = "destroyed"
    session.save()
    services.delete_release(release=old, actor=ACTOR)


def test_deleting_removes_the_snapshot_and_keeps_the_row(
    space: Space, releases: tuple[Release, Release], account: FileProvider
) -> None:
    old, _ = releases
    services.delete_release(release=old, actor=ACTOR)
    old.refresh_from_db()
    assert not old.usable_on(space.backend)
    assert async_to_sync(reaper.delete_snapshot)(old.pk)
    old.refresh_from_db()
    assert old.state == ReleaseState.DELETED
    assert old.snapshot_id not in account.snapshots
    assert not async_to_sync(reaper.delete_snapshot)(old.pk)


def test_a_snapshot_that_is_still_needed_is_tried_again(
    space: Space, releases: tuple[Release, Release], account: FileProvider
) -> None:
    old, _ = releases
    services.delete_release(release=old, actor=ACTOR)
    account.fail_next("snapshots.delete", Conflict("A sandbox stands on it."))
    assert not async_to_sync(reaper.delete_snapshot)(old.pk)
    assert old.pk in async_to_sync(reaper.sweep)().deleted_releases


def test_running_sessions_are_told_until_it_worked(
    space: Space, releases: tuple[Release, Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[ports.Switch] = []
    monkeypatch.setattr(ports, "on_switch", [])
    monkeypatch.setattr(ledger, "on_switch", [heard.append])
    promotion = services.start_rollout(
        space=space, release=releases[0], percent=5, sessions=["vip"], actor=ACTOR
    )

    def fail(switch: ports.Switch) -> None:
        raise Conflict("not now")

    monkeypatch.setattr(ledger, "on_switch", [fail])
    with pytest.raises(Conflict):
        ledger.tell_sessions(promotion)
    assert Promotion.objects.get(pk=promotion.pk).sessions_told_at is None
    monkeypatch.setattr(ledger, "on_switch", [heard.append])
    ledger.tell_sessions(promotion)
    ledger.tell_sessions(promotion)
    assert [(switch.space_id, switch.session_ids) for switch in heard] == [(space.pk, ("vip",))]
