"""A step that is run again ends where it ended the first time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.tenants.models import Space
from skills import services
from skills.build import pipeline
from skills.models import Build, BuildState, BuildStep, Promotion, Release
from skills.plan import StepKind
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, run

STEPS = pipeline.STEPS


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(times=st.lists(st.integers(1, 3), min_size=len(STEPS), max_size=len(STEPS)))
def test_any_number_of_runs_of_any_step_is_one_build(
    space: Space, account: FileProvider, times: list[int]
) -> None:
    def repeated(step: Any, count: int) -> Any:
        async def run_step(context: Any) -> None:
            for _ in range(count):
                await step(context)

        return run_step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pipeline,
            "STEPS",
            tuple(
                (name, repeated(step, count))
                for (name, step), count in zip(STEPS, times, strict=True)
            ),
        )
        number = Build.objects.count()
        version = add_skill(
            space, "one", {"number.txt": str(number)}, {StepKind.PIP: ["six"], StepKind.APT: ["jq"]}
        )
        fresh = Space.objects.get(pk=space.pk)
        build = run(services.install(space=fresh, version=version, actor=ACTOR))
    assert build.state == BuildState.SUCCEEDED, build.error
    assert [step["step"] for step in build.steps] == list(BuildStep)
    assert Release.objects.filter(build=build).count() == 1
    assert Release.objects.count() == len(account.snapshots) == number + 1
    assert Promotion.objects.filter(space=space).count() == number + 1
    assert not account.sandboxes
