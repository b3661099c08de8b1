"""The head of a SKILL.md, one row for every malformed shape that was met."""

from __future__ import annotations

import pytest

from skills.package import PackageRefused, VerdictKind, read_package
from tests.skills.package.builders import uploaded


def head(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", "body", ""])


GOOD = ("name: demo", "description: A demo.")

REFUSED = {
    "no frontmatter": ("# Title\n", "frontmatter_missing", 1),
    "blank first line": ("\n" + head(*GOOD), "frontmatter_missing", 1),
    "empty": (" ", "frontmatter_missing", 1),
    "unclosed": ("---\nname: a\ndescription: b\n\n# Title\n", "frontmatter_unclosed", 3),
    "duplicate key": (head(*GOOD, "name: again"), "yaml_duplicate_key", 4),
    "duplicate nested key": (head(*GOOD, "metadata:", "  a: x", "  a: y"), "yaml_duplicate_key", 6),
    "anchor": (head(*GOOD, "a: &x 1"), "yaml_alias", 4),
    "alias": (head(*GOOD, "a: &x 1", "b: *x"), "yaml_alias", None),
    "anchor twice": (head(*GOOD, "a: &x 1", "b: &x 2"), "yaml_alias", 4),
    "unknown alias": (head(*GOOD, "b: *x"), "yaml_alias", 4),
    "tag": (head(*GOOD, "b: !!python/object:os.system x"), "yaml_tag", 4),
    "custom tag": (head(*GOOD, "b: !secret x"), "yaml_tag", 4),
    "list": (head("- name", "- description"), "frontmatter_not_mapping", 2),
    "nothing between the fences": (head(), "frontmatter_not_mapping", 2),
    "scalar": (head("just text"), "frontmatter_not_mapping", 2),
    "name missing": (head("description: x"), "name_missing", 1),
    "name empty": (head("name:", "description: x"), "name_missing", 2),
    "description missing": (head("name: x"), "description_missing", 1),
    "description blank": (head("name: x", 'description: "  "'), "description_missing", 3),
    "name is a number": (head("name: 123", "description: x"), "name_not_string", 2),
    "description is a list": (head("name: x", "description: [a]"), "description_not_string", 3),
    "description is a boolean": (head("name: x", "description: true"), "description_not_string", 3),
    "unclosed quote": (head("name: x", 'description: "abc'), "yaml_invalid", None),
    "tab indent": (head(*GOOD, "metadata:", "\ta: b"), "yaml_invalid", None),
    "brackets": (head(*GOOD, "a: " + "[" * 60_000), "yaml_too_complex", None),
    "deep nesting": (head(*GOOD, "a: " + "- " * 2_000), "yaml_invalid", None),
    "complex key": (head(*GOOD, "? [a, b]", ": c"), "yaml_invalid", None),
    "NUL": (head("name: x\0", "description: x"), "skill_md_nul", 2),
    "control character": (head("name: x", "description: a\x07"), "yaml_invalid", None),
    "name is a path": (head("name: ../x", "description: x"), "name_unsafe", 2),
    "name is a dot file": (head("name: .manifest", "description: x"), "name_unsafe", 2),
    "name with a hidden character": (head("name: a\u202eb", "description: x"), "name_unsafe", 2),
    "name longer than a folder's": (head("name: " + "a" * 256, "description: x"), "name_unsafe", 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, code, line = REFUSED[case]
    with pytest.raises(PackageRefused) as refusal:
        read_package(text)
    problem = refusal.value.problems[0]
    assert (problem.code, problem.entry) == (code, "SKILL.md")
    assert "SKILL.md" in problem.sentence or "name" in problem.sentence
    if line is not None:
        assert problem.line == line


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1", "gb18030"])
def test_other_encodings(encoding: str) -> None:
    raw = head(
        "name: x", "description: café 数据" if encoding != "latin-1" else "description: é"
    ).encode(encoding)
    with pytest.raises(PackageRefused) as refusal:
        read_package(uploaded({"SKILL.md": raw}))
    assert refusal.value.code in ("skill_md_not_utf8", "skill_md_nul")
    assert refusal.value.entry == "SKILL.md"


def test_both_missing_fields_are_named_at_once() -> None:
    with pytest.raises(PackageRefused) as refusal:
        read_package(head("license: MIT"))
    assert [p.code for p in refusal.value.problems] == ["name_missing", "description_missing"]


REPAIRED = {
    "colon": ("description: Use when: asked", "Use when: asked"),
    "several colons": ("description: A: b: c", "A: b: c"),
    "colon at the end": ("description: Use for:", "Use for:"),
    "quotes inside": ('description: Say "hi": ok', 'Say "hi": ok'),
    "continuation": ("description: Use\n  when: asked\n  twice", "Use when: asked twice"),
    "list-like": ("description: [Beta] Makes things", "[Beta] Makes things"),
    "reserved": ("description: @mention people", "@mention people"),
    "backtick": ("description: `x` does y", "`x` does y"),
    "star": ("description: *bold* claims", "*bold* claims"),
    "exclamation": ("description: !important thing", "!important thing"),
    "not the description": ("description: fine\nnote: a: b", "fine"),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_repaired_in_memory_and_shown(case: str) -> None:
    lines, description = REPAIRED[case]
    package = read_package(head("name: demo", lines))
    assert package.description == description
    notes = [note for note in package.notes if note.code == "yaml_repaired"]
    assert len(notes) == 1
    repair = notes[0].repair
    assert repair is not None
    assert repair.before in lines
    again = read_package(head("name: demo", lines.replace(repair.before, repair.after)))
    assert again.description == description
    assert not again.notes
    assert lines.encode() in package.read("SKILL.md"), "the file itself is kept as it is"
    assert not package.verdict(VerdictKind.WEKNORA).ok


def test_valid_yaml_is_never_repaired() -> None:
    text = head("name: demo", 'description: "a: b"', "metadata:", '  x: "c: d"')
    assert not read_package(text).notes


def test_bom_and_windows_line_ends() -> None:
    raw = b"\xef\xbb\xbf" + head(*GOOD).replace("\n", "\r\n").encode()
    package = read_package(raw)
    assert (package.name, package.body) == ("demo", "body")
    assert {note.code for note in package.notes} == {"bom_ignored", "crlf_read"}
    assert package.read("SKILL.md") == raw


def test_dashes_in_a_quoted_value_are_content() -> None:
    assert read_package(head("name: x", 'description: "a --- b"')).description == "a --- b"
    block = read_package(head("name: x", "description: |", "  a", "  ---", "  b"))
    assert block.description == "a\n---\nb"


def test_yaml_1_2_types() -> None:
    package = read_package(
        head("name: x", "description: yes", "a: no", "b: 1.10", "c: 2026-01-02", "d: ~", "e: .inf",
             "f: 0o17", "g: true", "h: 99999999999999999999", "version: 1.10")
    )  # fmt: skip
    assert package.description == "yes"
    assert package.version == "1.10"
    assert dict(package.frontmatter) | {} == {
        "name": "x", "description": "yes", "a": "no", "b": 1.1, "c": "2026-01-02", "d": None,
        "e": ".inf", "f": "0o17", "g": True, "h": "99999999999999999999", "version": 1.1,
    }  # fmt: skip


def test_allowed_tools_and_metadata_in_any_form() -> None:
    package = read_package(
        head(*GOOD, "allowed-tools: [Read, Bash]", "metadata: {author: a, deep: {version: 2}}")
    )
    assert package.frontmatter["allowed-tools"] == ["Read", "Bash"]
    assert package.frontmatter["metadata"] == {"author": "a", "deep": {"version": 2}}
    assert "metadata_nested" in {p.code for p in package.verdict(VerdictKind.LENIENT).problems}


def test_the_version_may_stand_in_metadata() -> None:
    assert read_package(head(*GOOD, "metadata:", '  version: "2.0"')).version == "2.0"
    assert read_package(head(*GOOD)).version is None


def test_a_line_longer_than_64_kib() -> None:
    package = read_package(head(*GOOD) + "x" * 70_000)
    assert [p.code for p in package.verdict(VerdictKind.WEKNORA).problems] == ["line_too_long"]
