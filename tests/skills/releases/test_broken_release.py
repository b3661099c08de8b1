"""A release whose snapshot is gone: sessions fall back to the base template, visibly."""

from __future__ import annotations

from asgiref.sync import async_to_sync

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.fleet.sessions import sandbox_plan, session_key
from console.policies.services import create_first_policy
from console.tenants.models import Space
from sandboxes.sessions import SandboxPlan
from skills import reaper
from skills.models import ReleaseState
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import add_skill, install


def plan(space: Space) -> SandboxPlan:
    return async_to_sync(sandbox_plan)(session_key(space, "chat"), pause_on_idle=True)


def test_sessions_start_from_the_base_while_the_release_is_broken(
    space: Space, account: FileProvider
) -> None:
    create_first_policy(space=space, actor=SYSTEM)
    release = install(space, add_skill(space, "one")).result
    assert release is not None
    assert (plan(space).template, plan(space).fell_back) == (release.snapshot_id, False)
    del account.snapshots[release.snapshot_id]
    account._save()
    assert not async_to_sync(reaper.check_snapshot)(release.pk)
    release.refresh_from_db()
    assert release.state == ReleaseState.BROKEN
    assert release.problem == "Its snapshot is gone from the provider."
    assert (plan(space).template, plan(space).fell_back, plan(space).release_id) == (
        "base",
        True,
        "",
    )
    assert AuditEntry.objects.filter(action="release.broken", outcome="failed").count() == 1


def test_a_release_whose_snapshot_is_there_stays_as_it_is(
    space: Space, account: FileProvider
) -> None:
    release = install(space, add_skill(space, "one")).result
    assert release is not None
    assert async_to_sync(reaper.check_snapshot)(release.pk)
    release.refresh_from_db()
    assert release.state == ReleaseState.ACTIVE
