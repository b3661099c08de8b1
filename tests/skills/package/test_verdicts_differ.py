"""Three verdicts side by side: the specification, WeKnora (which counts bytes), and this reader."""

from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

from skills.package import VerdictKind, read_package
from tests.skills.package.builders import uploaded


def head(name: str, description: str = "A demo.", *more: str) -> bytes:
    lines = ["---", f"name: {name}", f"description: {description}", *more, "---", "body"]
    return "\n".join(lines).encode()


# name, description, more fields -> codes of strict and of WeKnora
CASES = {
    "plain": (head("demo"), [], []),
    "unicode": (head("数据分析"), [], []),
    "upper case": (head("Demo"), ["name_not_lowercase"], []),
    "outer hyphen": (head("demo-"), ["name_hyphen_edge"], []),
    "double hyphen": (head("a--b"), ["name_hyphen_double"], []),
    "blank in the name": (head("my demo"), ["name_characters"], ["name_characters"]),
    "long name": (head("a" * 65), ["name_too_long"], ["name_too_long"]),
    "64 characters, 192 bytes": (head("数" * 64), [], ["name_too_long"]),
    "long description": (head("a", "x" * 1025), ["description_too_long"], ["description_too_long"]),
    "1024 characters, 3072 bytes": (head("a", "数" * 1024), [], ["description_too_long"]),
    "reserved word": (head("claude-api"), [], ["name_reserved"]),
    "tag in the description": (head("a", "Use <Suspense> well"), [], ["description_tag"]),
    "extra fields": (head("a", "b", "version: 1", "author: me"), ["fields_unknown"], []),
    "flow list": (head("a", "b", "allowed-tools: [Read]"), ["yaml_invalid"], []),
    "bom": (b"\xef\xbb\xbf" + head("a"), ["frontmatter_missing"], ["bom"]),
    "crlf": (head("a").replace(b"\n", b"\r\n"), [], []),
    "dashes in quotes": (head("a", '"x --- y"'), ["yaml_invalid"], []),
    "colon": (head("a", "use: it"), ["yaml_invalid"], ["yaml_invalid"]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_three_verdicts(case: str) -> None:
    raw, strict, weknora = CASES[case]
    package = read_package(raw)
    found = {
        verdict.kind: [problem.code for problem in verdict.problems] for verdict in package.verdicts
    }
    assert found[VerdictKind.STRICT] == strict
    assert found[VerdictKind.WEKNORA] == weknora
    assert package.verdict(VerdictKind.LENIENT).ok, "what is read at all is accepted"


@pytest.mark.parametrize("case", CASES)
def test_strict_is_what_the_reference_validator_says(case: str, tmp_path: Path) -> None:
    raw, _, _ = CASES[case]
    package = read_package(raw)
    folder = tmp_path / package.name
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(raw)
    strict = read_package(folder).verdict(VerdictKind.STRICT)
    assert strict.ok == (not skills_ref.validate(folder))


def test_the_folder_has_to_be_called_like_the_skill() -> None:
    package = read_package(uploaded({"other/SKILL.md": head("demo")}))
    assert [p.code for p in package.verdict(VerdictKind.STRICT).problems] == ["name_not_folder"]
    assert package.verdict(VerdictKind.WEKNORA).ok
    lenient = package.verdict(VerdictKind.LENIENT)
    assert [problem.code for problem in lenient.problems] == ["name_not_folder"]
    assert lenient.ok


def test_extra_fields_are_warned_of() -> None:
    lenient = read_package(head("a", "b", "triggers: x")).verdict(VerdictKind.LENIENT)
    assert [(p.code, p.line, p.warning) for p in lenient.problems] == [("field_unknown", 4, True)]


def test_lower_case_skill_md_is_not_weknoras() -> None:
    package = read_package(uploaded({"skill.md": head("demo")}))
    assert [p.code for p in package.verdict(VerdictKind.WEKNORA).problems] == ["skill_md_name"]


def test_a_sentence_names_the_mend() -> None:
    problem = read_package(head("Demo")).verdict(VerdictKind.STRICT).problems[0]
    assert problem.sentence == "Skill name 'Demo' must be lowercase: write it in lower case."
    assert problem.line == 2
