"""Only what surely is nobody's is deleted; everything else is reported and kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from sandboxes.errors import Internal, NotFound, Unavailable
from sandboxes.sessions import FindingKind, ReapReport, SessionKey, reap
from sandboxes.sessions.binding import Binding
from sandboxes.sessions.keys import TAG_BUILD, TAG_SESSION
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import CreateRequest, SandboxInfo, SandboxState
from tests.sandboxes.sessions.world import BACKEND, KEY, Replica, make_plan

NOW = datetime.now(UTC)
OLD = NOW - timedelta(hours=5)


@pytest.fixture(autouse=True)
async def long_lived_store(replica: Replica) -> None:
    """Redis has been here for a day, so a missing binding means something."""
    await replica.manager.store_since(now=(NOW - timedelta(days=1)).timestamp())


def request_of(session: str = "lost", **changes: str | None) -> CreateRequest:
    request = make_plan().request(SessionKey(KEY.tenant, KEY.space, session), BACKEND)
    metadata = {**request.metadata, **changes}
    kept = {name: value for name, value in metadata.items() if value is not None}
    return CreateRequest(
        template=request.template, network=request.network, timeout=request.timeout, metadata=kept
    )


async def run(replica: Replica, **options: Any) -> ReapReport:
    defaults: dict[str, Any] = {"dry_run": False, "grace_s": 3600, "now": NOW}
    return await reap(
        client=replica.client,
        sessions=replica.manager,
        backend=BACKEND,
        **{**defaults, **options},
    )


def kinds(report: ReapReport) -> list[str]:
    return sorted(finding.kind.value for finding in report.findings)


async def test_running_and_paused_orphans_go_and_the_bound_stay(
    replica: Replica, provider: SimulatedProvider
) -> None:
    bound = await replica.resolve()
    provider.start(request_of("a"), started_at=OLD)
    paused = provider.start(request_of("b"), started_at=OLD)
    provider.set_state(paused.id, SandboxState.PAUSED)
    report = await run(replica)
    assert (report.seen, report.bound, report.deleted, report.aborted) == (3, 1, 2, "")
    assert [s.id for s in provider.live()] == [bound.sandbox.id]
    assert all(f.deleted and f.age_s == 5 * 3600 for f in report.of(FindingKind.ORPHAN))


async def test_a_dry_run_deletes_nothing_and_finds_the_same(
    replica: Replica, provider: SimulatedProvider
) -> None:
    provider.start(request_of(), started_at=OLD)
    report = await run(replica, dry_run=True)
    assert kinds(report) == ["orphan"]
    assert report.deleted == 0
    assert len(provider.live()) == 1


async def test_a_young_one_has_its_grace(replica: Replica, provider: SimulatedProvider) -> None:
    provider.start(request_of(), started_at=NOW - timedelta(minutes=59))
    assert kinds(await run(replica)) == ["young"]
    assert len(provider.live()) == 1
    assert (await run(replica, grace_s=0)).deleted == 1


async def test_an_unknown_start_never_bypasses_the_grace(
    replica: Replica, provider: SimulatedProvider
) -> None:
    sandbox = provider.start(request_of(), started_at=OLD)
    object.__setattr__(provider.sandboxes[sandbox.id].info, "started_at", None)
    for grace_s in (3600, 0):
        report = await run(replica, grace_s=grace_s)
        assert kinds(report) == ["unverifiable"]
        assert report.findings[0].age_s is None
    assert len(provider.live()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"skillyard_tenant": None},
        {"skillyard_space": None},
        {"skillyard_session": None},
        {"skillyard_schema": None},
        {"skillyard_schema": "2"},
        {"skillyard_session": "{}"},
        {"skillyard_build": "build-1"},
    ],
)
async def test_what_lacks_a_tag_is_reported_and_kept(
    replica: Replica, provider: SimulatedProvider, changes: dict[str, str | None]
) -> None:
    provider.start(request_of(**changes), started_at=OLD)
    assert kinds(await run(replica)) == ["unverifiable"]
    assert len(provider.live()) == 1


async def test_strangers_are_not_even_seen(replica: Replica, provider: SimulatedProvider) -> None:
    provider.start(request_of(skillyard_backend="backend-2"), started_at=OLD)
    provider.start(request_of(skillyard_tenant="tenant-2"), started_at=OLD)
    assert (await run(replica, tenant="tenant-1")).seen == 0
    assert len(provider.live()) == 2


async def test_a_provider_that_ignores_the_filter_loses_nothing(
    replica: Replica, provider: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.start(request_of(skillyard_backend="backend-2"), started_at=OLD)

    async def everything(filter: object) -> AsyncIterator[object]:
        for sandbox in provider.live():
            yield sandbox.info

    monkeypatch.setattr(replica.client, "list", everything)
    assert kinds(await run(replica)) == ["unverifiable"]
    assert len(provider.live()) == 1


async def test_a_duplicate_of_a_bound_session_is_an_orphan(
    replica: Replica, provider: SimulatedProvider
) -> None:
    bound = await replica.resolve()
    provider.start(request_of(KEY.session), started_at=OLD)
    assert (await run(replica)).deleted == 1
    assert [s.id for s in provider.live()] == [bound.sandbox.id]


async def test_one_bound_meanwhile_is_kept(replica: Replica, provider: SimulatedProvider) -> None:
    sandbox = provider.start(request_of(KEY.session), started_at=OLD)

    async def bind_meanwhile() -> bool:
        await replica.resolve()
        return True

    report = await run(replica, same_account=bind_meanwhile)
    assert report.deleted == 0
    assert kinds(report) == ["young"]
    assert [s.id for s in provider.live()] == [sandbox.id]


async def test_one_whose_session_is_busy_is_left_for_the_next_run(
    replica: Replica, provider: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxes.sessions.reaper._LOCK_WAIT_S", 0.02)
    provider.start(request_of(KEY.session), started_at=OLD)
    provider.start(request_of("other"), started_at=OLD)
    async with replica.manager.exclusive(key=KEY):
        report = await run(replica)
    assert kinds(report) == ["orphan", "unverifiable"]
    assert report.deleted == 1


async def test_a_failed_delete_is_reported_and_the_rest_go_on(
    replica: Replica, provider: SimulatedProvider
) -> None:
    for session in ("a", "b", "c"):
        provider.start(request_of(session), started_at=OLD)
    provider.fail_next("delete", Unavailable("the provider is down"))
    provider.fail_next("delete", NotFound("gone"))
    report = await run(replica)
    assert [f.error for f in report.findings if not f.deleted] == ["the provider is down"]
    assert report.deleted == 2


async def test_a_changed_account_deletes_nothing(
    replica: Replica, provider: SimulatedProvider
) -> None:
    async def changed() -> bool:
        return False

    async def broken() -> bool:
        raise Internal("no answer")

    provider.start(request_of(), started_at=OLD)
    for check in (changed, broken):
        report = await run(replica, same_account=check)
        assert kinds(report) == ["unverifiable"]
        assert "account" in report.findings[0].reason
    assert len(provider.live()) == 1


async def test_a_list_that_breaks_off_deletes_nothing(
    replica: Replica, provider: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.start(request_of(), started_at=OLD)

    async def breaks_off(filter: object) -> AsyncIterator[object]:
        for sandbox in provider.live():
            for _ in range(600):
                yield sandbox.info
        raise Unavailable("page 2 did not come")

    monkeypatch.setattr(replica.client, "list", breaks_off)
    report = await run(replica)
    assert report.aborted == "page 2 did not come"
    assert len(provider.live()) == 1


async def test_a_failed_read_of_the_bindings_deletes_nothing(
    replica: Replica, provider: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.start(request_of(), started_at=OLD)

    async def broken(**_: object) -> object:
        raise Unavailable("Redis is away")

    monkeypatch.setattr(replica.manager, "bindings", broken)
    assert (await run(replica)).aborted == "Redis is away"
    assert len(provider.live()) == 1


async def test_a_damaged_binding_is_reported(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    await replica.resolve()
    await redis.set(replica.manager.names.of(KEY).binding, "damaged")
    assert kinds(await run(replica, grace_s=0)) == ["unverifiable"]
    assert len(provider.live()) == 1


async def test_after_a_flush_the_grace_begins_anew(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    first = await replica.resolve()
    object.__setattr__(provider.sandboxes[first.sandbox.id].info, "started_at", OLD)
    await redis.flushall()
    assert kinds(await run(replica)) == ["young"]
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    assert (await run(replica, now=NOW + timedelta(hours=2))).bound == 1


async def test_a_session_that_lives_on_keeps_its_sandbox_for_its_next_use(
    replica: Replica, provider: SimulatedProvider
) -> None:
    async def alive(keys: Collection[SessionKey]) -> Collection[SessionKey]:
        return [key for key in keys if key.session == "lives"]

    kept = provider.start(request_of("lives"), started_at=OLD)
    provider.start(request_of("deleted"), started_at=OLD)
    report = await run(replica, sessions_alive=alive)
    assert kinds(report) == ["claimable", "orphan"]
    assert [s.id for s in provider.live()] == [kept.id]


async def test_builds_are_kept_unless_their_build_is_over(
    replica: Replica, provider: SimulatedProvider
) -> None:
    async def alive(builds: Collection[str]) -> Collection[str]:
        return {"running"} & set(builds)

    running, over = (
        provider.start(request_of(**{TAG_BUILD: build, TAG_SESSION: None}), started_at=OLD)
        for build in ("running", "over")
    )
    assert kinds(await run(replica)) == ["unverifiable", "unverifiable"]
    report = await run(replica, builds_alive=alive)
    assert (report.building, report.deleted) == (1, 1)
    assert [s.id for s in provider.live()] == [running.id]
    assert report.findings[0].build == "over"
    assert report.findings[0].sandbox_id == over.id


async def test_stuck_and_drifted_ones_are_named(
    replica: Replica, provider: SimulatedProvider
) -> None:
    drifted = await replica.resolve()
    stuck = provider.start(request_of("stuck"), started_at=OLD)
    provider.set_state(stuck.id, SandboxState.TRANSITIONING)
    newer = make_plan(release="8")

    async def inspect(batch: Sequence[tuple[SandboxInfo, Binding]]) -> dict[str, str]:
        return {info.id: "Old." for info, _ in batch if newer.drifted(info.metadata)}

    report = await run(replica, inspect=inspect)
    assert kinds(report) == ["drifted", "stuck"]
    assert report.of(FindingKind.DRIFTED)[0].sandbox_id == drifted.sandbox.id
    assert len(provider.live()) == 2


async def test_ten_thousand_are_reconciled_with_flat_memory(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    pipeline = redis.pipeline(transaction=False)
    for number in range(10_000):
        key = SessionKey(KEY.tenant, KEY.space, f"chat-{number}")
        sandbox = provider.start(request_of(key.session), started_at=OLD)
        binding = Binding(
            key=key,
            backend=BACKEND,
            sandbox_id=sandbox.id,
            template="release-7",
            policy_revision="1",
            release="7",
            fell_back=False,
            has_token=True,
            timeout_s=1800,
            bound_at=OLD,
            started_at=OLD,
        )
        if number % 100:
            pipeline.set(replica.manager.names.of(key).binding, binding.to_json())
    await pipeline.execute()
    tracemalloc.start()
    report = await run(replica, dry_run=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.seen, report.bound, len(report.findings)) == (10_000, 9_900, 100)
    assert peak < 10 * 1024 * 1024
