"""What is met in the wild is taken, with a note where something was dropped or repaired."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from skills.package import PackageRefused, RootChoiceNeeded, UploadedFile, read_package
from tests.skills.package.builders import SKILL_MD, on_disk, skill, tarred, uploaded, zipped

TREE = {"SKILL.md": SKILL_MD, "scripts/run.sh": b"#!/bin/sh\necho hi\n", "assets/a.bin": b"\0\1\2"}
EXECUTABLE = frozenset({"scripts/run.sh"})


def codes(package: object) -> list[str]:
    return [note.code for note in package.notes]  # type: ignore[attr-defined]


def test_every_form_gives_the_same_digest(tmp_path: Path) -> None:
    archive = tmp_path / "skill.zip"
    archive.write_bytes(zipped(TREE, executable=EXECUTABLE))
    forms: list[Any] = [
        zipped(TREE, executable=EXECUTABLE),
        tarred(TREE, executable=EXECUTABLE),
        tarred(TREE, executable=EXECUTABLE, gz=True),
        io.BytesIO(zipped(TREE, executable=EXECUTABLE)),
        on_disk(tmp_path / "folder", TREE, executable=EXECUTABLE),
        archive,
        uploaded(TREE, executable=EXECUTABLE),
    ]
    packages = [read_package(form) for form in forms]
    assert len({package.digest for package in packages}) == 1
    for package in packages:
        assert [file.path for file in package.files] == sorted(TREE)
        assert {path: package.read(path) for path in TREE} == TREE
        assert b"".join(package.stream("assets/a.bin")) == TREE["assets/a.bin"]
        assert package.file("scripts/run.sh").executable
        assert not package.file("SKILL.md").executable


def test_the_executable_bit_and_the_path_are_part_of_the_digest() -> None:
    plain = read_package(zipped(TREE)).digest
    assert plain != read_package(zipped(TREE, executable=EXECUTABLE)).digest
    moved = {("b/" + name if name == "assets/a.bin" else name): TREE[name] for name in TREE}
    assert plain != read_package(zipped(moved)).digest


@pytest.mark.parametrize("folder", ["my-skill", "repo-main", "数据分析"])
def test_one_wrapping_folder_is_the_root(folder: str) -> None:
    wrapped = {f"{folder}/{name}": content for name, content in TREE.items()}
    for archive in (zipped(wrapped), tarred(wrapped, gz=True)):
        package = read_package(archive)
        assert package.root == folder
        assert package.digest == read_package(zipped(TREE)).digest


def test_a_skill_deep_in_a_repository_is_found_and_the_rest_left_out() -> None:
    tree = {"repo-main/README.md": b"hi", "repo-main/skills/demo-skill/SKILL.md": SKILL_MD}
    package = read_package(zipped(tree))
    assert package.root == "repo-main/skills/demo-skill"
    assert [file.path for file in package.files] == ["SKILL.md"]
    assert "outside_dropped" in codes(package)


def test_macos_junk_is_dropped_with_a_note() -> None:
    junk = {
        "__MACOSX/._SKILL.md": b"\0\5\x16\7",
        ".DS_Store": b"x",
        "scripts/.DS_Store": b"x",
        "._run.sh": b"x",
        ".git/config": b"x",
        "scripts/__pycache__/a.cpython-311.pyc": b"x",
    }
    package = read_package(zipped({**TREE, **junk}))
    assert package.digest == read_package(zipped(TREE)).digest
    assert "junk_dropped" in codes(package)


def test_a_pasted_skill_md_is_a_package() -> None:
    package = read_package(SKILL_MD.decode())
    assert (package.name, package.description) == ("demo-skill", "Makes a demo. Use for tests.")
    assert package.body == "# Demo"
    assert (
        package.digest == read_package(SKILL_MD).digest == read_package(io.BytesIO(SKILL_MD)).digest
    )


def test_several_skills_let_the_admin_choose() -> None:
    second = SKILL_MD.replace(b"demo-skill", b"other")
    tree = {"a/SKILL.md": SKILL_MD, "b/SKILL.md": second, "b/x.txt": b"x", "c/SKILL.md": b"broken"}
    with pytest.raises(RootChoiceNeeded) as refusal:
        read_package(zipped(tree))
    assert refusal.value.code == "several_skills"
    assert [(c.root, c.name) for c in refusal.value.candidates] == [
        ("a", "demo-skill"), ("b", "other"), ("c", ""),
    ]  # fmt: skip
    package = read_package(zipped(tree), root="b/")
    assert (package.name, package.root) == ("other", "b")
    assert [file.path for file in package.files] == ["SKILL.md", "x.txt"]
    with pytest.raises(PackageRefused) as unknown:
        read_package(zipped(tree), root="nowhere")
    assert unknown.value.code == "root_unknown"


def test_the_top_can_be_chosen_among_several() -> None:
    tree = {"SKILL.md": SKILL_MD, "assets/template/SKILL.md": SKILL_MD}
    with pytest.raises(RootChoiceNeeded) as refusal:
        read_package(zipped(tree))
    assert [candidate.root for candidate in refusal.value.candidates] == ["", "assets/template"]
    assert len(read_package(zipped(tree), root="").files) == 2
    assert len(read_package(zipped(tree), root=".").files) == 2


def test_lower_case_skill_md_counts_at_a_root_only() -> None:
    assert read_package(zipped({"skill.md": SKILL_MD})).skill_md_path == "skill.md"
    assert read_package(zipped({"wrap/skill.md": SKILL_MD, "wrap/a": b"x"})).root == "wrap"
    with pytest.raises(PackageRefused) as refusal:
        read_package(zipped({"docs/api/skill.md": SKILL_MD, "README.md": b"x"}))
    assert (refusal.value.code, refusal.value.entry) == ("skill_md_missing", "docs/api/skill.md")


def test_names_without_the_utf8_flag_are_decoded() -> None:
    """Windows archivers write the system's code page and raise no flag."""
    archive = zipped({"SKILL.md": SKILL_MD, "aaaa.txt": b"x"})
    package = read_package(archive.replace(b"aaaa.txt", "文档".encode("gb18030") + b".txt"))
    assert package.read("文档.txt") == b"x"
    assert "name_decoded" in codes(package)


def test_decomposed_names_are_kept_composed() -> None:
    package = read_package(zipped({"SKILL.md": SKILL_MD, "cafe\u0301.txt": b"x"}))
    assert package.read("caf\u00e9.txt") == b"x"
    assert "name_normalised" in codes(package)


def test_symbols_that_package_managers_use_are_allowed_in_names() -> None:
    assert skill({"@scope/a+b (1)#%.js": b"x", "-dash": b"x", ".hidden": b"x"}).files


def test_a_stream_that_cannot_seek_is_read() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

    assert read_package(Pipe(zipped(TREE))).digest == read_package(zipped(TREE)).digest


def test_uploaded_streams_are_read_from_their_start() -> None:
    stream = io.BytesIO(SKILL_MD)
    stream.read()
    assert read_package([UploadedFile("w/SKILL.md", stream)]).name == "demo-skill"


def test_a_package_larger_than_memory_spools() -> None:
    big = bytes(range(256)) * 4096 * 20  # 20 MiB, twice: past what stays in memory
    tree = {"SKILL.md": SKILL_MD, "a.bin": big, "b.bin": big[::-1]}
    with read_package(uploaded(tree)) as package:
        assert package.read("b.bin") == big[::-1]
        assert package.file("a.bin").size_bytes == len(big)
