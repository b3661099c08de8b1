"""From the current release when that is as good as from the base, else from the base."""

from __future__ import annotations

import pytest

from console.tenants.models import Space
from skills import services
from skills.models import Build, BuildState
from skills.plan import StepKind
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install, log_of, run


def fresh(space: Space) -> Space:
    return Space.objects.get(pk=space.pk)


def uploads(account: FileProvider) -> list[str]:
    return [line.split("place ")[1].split()[0] for line in account.ran if " place " in line]


def test_an_added_skill_is_installed_on_top(space: Space, account: FileProvider) -> None:
    first = install(space, add_skill(space, "one"))
    account.ran.clear()
    second = install(space, add_skill(space, "two"))
    assert (first.parent, second.parent) == (None, first.result)
    assert uploads(account) == ["two"]
    assert "keeps 1 skill(s)" in log_of(second)


def test_a_removed_skill_is_deleted_in_place(space: Space, account: FileProvider) -> None:
    one, two = add_skill(space, "one"), add_skill(space, "two")
    both = install(space, one, two)
    account.ran.clear()
    build = run(services.uninstall(space=fresh(space), skill=one.skill, actor=ACTOR))
    assert build.parent == both.result
    assert "rm -rf -- /opt/weknora/tenant/skills/one" in account.ran
    assert uploads(account) == []


@pytest.mark.parametrize("kind", [StepKind.APT, StepKind.COMMAND])
def test_a_skill_that_touched_the_system_leaves_by_a_clean_build(
    space: Space, account: FileProvider, kind: StepKind
) -> None:
    one = add_skill(space, "one", steps={kind: ["tree"]})
    install(space, one, add_skill(space, "two"))
    account.ran.clear()
    build = run(services.uninstall(space=fresh(space), skill=one.skill, actor=ACTOR))
    assert build.parent is None
    assert uploads(account) == ["two"]
    assert "“one” changed the system" in log_of(build)


def test_an_upgrade_with_the_same_requirements_keeps_its_packages(
    space: Space, account: FileProvider
) -> None:
    steps = {StepKind.PIP: ["numpy"], StepKind.NPM: ["left-pad"]}
    first = install(space, add_skill(space, "one", steps=steps))
    account.ran.clear()
    second = install(space, add_skill(space, "one", {"new.txt": "x"}, steps))
    assert second.parent == first.result
    assert not [line for line in account.ran if line.startswith(("uv", "npm"))]
    assert any("! -name .venv ! -name node_modules" in line for line in account.ran)


def test_an_upgrade_with_other_requirements_installs_them_anew(
    space: Space, account: FileProvider
) -> None:
    install(space, add_skill(space, "one", steps={StepKind.PIP: ["numpy"]}))
    account.ran.clear()
    install(space, add_skill(space, "one", {"new.txt": "x"}, {StepKind.PIP: ["numpy", "six"]}))
    assert any(line.startswith("uv venv") for line in account.ran)
    assert not any("! -name .venv" in line for line in account.ran)


def test_a_changed_plan_is_a_changed_skill(space: Space, account: FileProvider) -> None:
    install(space, add_skill(space, "one", steps={}))
    account.ran.clear()
    version = add_skill(space, "one", steps={StepKind.PIP: ["six"]})
    assert install(space, version).reused_release is None
    assert uploads(account) == ["one"]


def test_a_newer_base_template_is_built_upon(space: Space, account: FileProvider) -> None:
    install(space, add_skill(space, "one"))
    space.base_template = "other"
    space.save()
    account.templates["other"] = account.clock()
    account._save()
    build = install(space, add_skill(space, "two"))
    assert (build.state, build.parent) == (BuildState.SUCCEEDED, None)
    assert build.result is not None
    assert build.result.template_id == "other"


def test_a_deep_pile_of_builds_is_flattened(
    space: Space, account: FileProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skills.build.start.MAX_DEPTH", 2)
    parents = [install(space, add_skill(space, f"s{n}")).parent is None for n in range(4)]
    assert parents == [True, False, True, False]


def test_compacting_builds_the_same_skills_from_the_base(
    space: Space, account: FileProvider
) -> None:
    install(space, add_skill(space, "one"))
    install(space, add_skill(space, "two"))
    account.ran.clear()
    build = run(services.compact(space=fresh(space), actor=ACTOR))
    assert (build.state, build.parent, build.reused_release) == (BuildState.SUCCEEDED, None, None)
    assert uploads(account) == ["one", "two"]
    assert fresh(space).current_release == build.result
    assert Build.objects.count() == 3
