"""What a diff of two releases says."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from console.tenants.models import Space
from skills import services
from skills.diff import Change, ChangeKind, Manifest, SkillEntry, compare
from tests.skills.world import add_skill, install


def entry(digest: str = "d1", plan: str = "p", **files: str) -> SkillEntry:
    return SkillEntry(digest=digest, version=f"#{digest}", plan_digest=plan, files=files)


def test_skills_files_and_packages_are_told_apart() -> None:
    before = Manifest(
        skills={"a": entry(same="1", old="2", edit="3"), "gone": entry()},
        packages={"pip": {"a": {"numpy": "1.0", "six": "1"}}, "npm": {}, "apt": {"tree": "1"}},
        size_bytes=100,
    )
    after = Manifest(
        skills={"a": entry("d2", same="1", new="4", edit="5"), "fresh": entry()},
        packages={"pip": {"a": {"numpy": "2.0"}}, "npm": {"fresh": {"x": "1"}}, "apt": {}},
        size_bytes=150,
    )
    diff = compare(before, after)
    assert [(c.kind, c.name) for c in diff.skills] == [
        ("changed", "a"),
        ("added", "fresh"),
        ("removed", "gone"),
    ]
    assert [(c.kind, c.scope, c.name) for c in diff.files] == [
        ("changed", "a", "edit"),
        ("added", "a", "new"),
        ("removed", "a", "old"),
    ]
    assert diff.pip == (
        Change(kind=ChangeKind.CHANGED, scope="a", name="numpy", before="1.0", after="2.0"),
        Change(kind=ChangeKind.REMOVED, scope="a", name="six", before="1"),
    )
    assert diff.npm == (Change(kind=ChangeKind.ADDED, scope="fresh", name="x", after="1"),)
    assert diff.apt == (Change(kind=ChangeKind.REMOVED, name="tree", before="1"),)
    assert diff.size_change_bytes == 50
    assert not diff.is_empty


packages = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"))


@given(packages, packages)
def test_a_diff_carries_one_set_over_into_the_other(
    old: dict[str, str], new: dict[str, str]
) -> None:
    diff = compare(
        Manifest(skills={}, packages={"apt": old}), Manifest(skills={}, packages={"apt": new})
    )
    result = dict(old)
    for change in diff.apt:
        assert result.get(change.name, "") == change.before
        if change.after:
            result[change.name] = change.after
        else:
            del result[change.name]
    assert result == new
    assert diff.is_empty == (old == new)


def test_five_hundred_packages_are_compared_in_a_moment() -> None:
    def manifest(number: int) -> Manifest:
        pip = {f"package-{n}": f"{n}.{number}" for n in range(500)}
        return Manifest(skills={}, packages={"pip": {"big": pip}})

    begun = time.process_time()
    assert len(compare(manifest(1), manifest(2)).pip) == 500
    assert time.process_time() - begun < 0.1


def test_the_rows_of_two_releases_are_compared(space: Space) -> None:
    first = install(space, add_skill(space, "one")).result
    second = install(space, add_skill(space, "one", {"new.txt": "x"})).result
    diff = services.diff_releases(before=first, after=second)
    assert [(c.name, c.before, c.after) for c in diff.skills] == [
        ("one", "#1, plan 1", "#2, plan 1")
    ]
    assert [(c.kind, c.name) for c in diff.files] == [("added", "new.txt")]
    assert diff.apt == ()
    assert services.diff_releases(before=None, after=second).skills[0].kind == "added"
