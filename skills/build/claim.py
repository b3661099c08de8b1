"""A worker's claim on a build: every write proves that the build is still this worker's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from skills.build import ledger
from skills.build.failures import BuildCancelled, ClaimLost
from skills.build.settings import MAX_ATTEMPTS
from skills.changes import Changes
from skills.models import Build, BuildState, BuildStep
from skills.ports import SYSTEM, Event, announce

__all__ = ["Claim", "take"]


@dataclass(frozen=True, slots=True)
class Claim:
    """`attempt` is the fence: a later worker raises the number, and our writes stop to count."""

    build_id: str
    attempt: int

    def _mine(self) -> Any:
        return Build.objects.filter(
            pk=self.build_id, attempt=self.attempt, state=BuildState.RUNNING
        )

    def update(self, **fields: Any) -> None:
        """Raises ClaimLost."""
        if not self._mine().update(**fields):
            raise ClaimLost(self.build_id)

    def beat(self) -> None:
        """Say that the worker lives. Raises ClaimLost, BuildCancelled."""
        self.update(heartbeat_at=timezone.now())
        self.check()

    def check(self) -> None:
        """Raises ClaimLost if the build is another's, BuildCancelled if it shall end."""
        row = self._mine().values_list("cancel_requested_at", flat=True).first()
        if row is None and not self._mine().exists():
            raise ClaimLost(self.build_id)
        if row is not None:
            raise BuildCancelled(self.build_id)

    def locked(self) -> Build:
        """The row for the switch, locked in the caller's transaction. Raises like `check`."""
        build: Build | None = self._mine().select_for_update().first()
        if build is None:
            raise ClaimLost(self.build_id)
        if build.cancel_requested_at:
            raise BuildCancelled(self.build_id)
        return build

    def begin_step(self, step: BuildStep) -> None:
        with transaction.atomic():
            build = self.locked()
            build.steps.append(_entry(step))
            build.step = step
            build.heartbeat_at = timezone.now()
            build.save(update_fields=["steps", "step", "heartbeat_at"])

    def end_step(self, *, ok: bool) -> None:
        with transaction.atomic():
            build = self._mine().select_for_update().first()
            if build is None:
                raise ClaimLost(self.build_id)
            close_step(build, ok=ok)
            build.save(update_fields=["steps"])

    @transaction.atomic
    def finish(self, state: BuildState, *, code: str = "", error: str = "", **fields: Any) -> None:
        """End the build without a switch. Raises ClaimLost."""
        build = self._mine().select_for_update(of=("self",)).select_related("space").first()
        if build is None:
            raise ClaimLost(self.build_id)
        close_step(build, ok=False)
        end(build, state, code=code, error=error, **fields)


def take(build_id: str) -> tuple[Build, Claim] | None:
    """Take a build up, new or from a worker that died; the caller holds its space's lock.

    None if it is over, not the first of its space, or has been tried too often (then it fails here).
    Writes down the skill set that it will have, from the release that serves now.
    """
    with transaction.atomic():
        build = (
            Build.objects.select_for_update(of=("self",))
            .select_related("space__backend", "space__current_release")
            .get(pk=build_id)
        )
        if build.is_finished or build.queue_position:
            return None
        if build.cancel_requested_at:
            end(build, BuildState.CANCELLED)
            return None
        if build.attempt >= MAX_ATTEMPTS:
            end(
                build,
                BuildState.FAILED,
                code="worker_lost",
                error=f"The worker died {build.attempt} times during this build. Look at the worker's "
                "log and memory, then try again.",
            )
            return None
        build.attempt += 1
        build.state, build.step, build.steps = BuildState.RUNNING, "", []
        build.heartbeat_at = timezone.now()
        build.started_at = build.started_at or build.heartbeat_at
        build.save()
        if not hasattr(build, "release"):
            present = ledger.release_set(build.space.current_release)
            ledger.write_items(build, Changes.from_json(build.changes).apply(present))
        return build, Claim(build.pk, build.attempt)


def end(build: Build, state: BuildState, *, code: str = "", error: str = "", **fields: Any) -> None:
    """Write a build's outcome and announce it, in the caller's transaction."""
    now = timezone.now()
    for name, value in fields.items():
        setattr(build, name, value)
    build.state, build.error_code, build.error, build.finished_at = state, code, error, now
    build.heartbeat_at = now
    build.save()
    announce(
        Event(
            action=f"build.{state.value}",
            actor=SYSTEM,
            tenant_id=build.space.tenant_id,
            space_id=build.space_id,
            target=build.pk,
            outcome="done" if state == BuildState.SUCCEEDED else "failed",
            details={"code": code, "error": error} if code else {},
        )
    )


def close_step(build: Build, *, ok: bool) -> None:
    if build.steps and build.steps[-1]["finished_at"] is None:
        build.steps[-1].update(finished_at=timezone.now().isoformat(), ok=ok)


def _entry(step: BuildStep) -> dict[str, Any]:
    return {
        "step": step.value,
        "started_at": timezone.now().isoformat(),
        "finished_at": None,
        "ok": None,
    }


def silence(build: Build) -> timedelta:
    """How long its worker has not been heard of."""
    return timezone.now() - (build.heartbeat_at or build.created_at)
