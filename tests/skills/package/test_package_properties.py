"""Hypothesis: whatever comes in, a package comes out unchanged or a refusal names what is wrong."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from skills.package import Limits, Package, PackageRefused, read_package, to_tar
from skills.package.names import is_junk
from tests.skills.package.builders import SKILL_MD, on_disk, tarred, uploaded, zipped

SMALL = Limits(max_total_bytes=2_000_000, max_file_bytes=1_000_000, max_archive_bytes=4_000_000)
FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

part = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"], exclude_characters="/\\\0"),
    min_size=1,
    max_size=12,
).filter(lambda text: text not in (".", "..") and not text.startswith("._"))
path = st.lists(part, min_size=1, max_size=4).map("/".join)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, bytes]:
    """Trees that any Linux folder could be, in NFC and without clashes."""
    names = draw(st.lists(path, max_size=8))
    tree = {"SKILL.md": SKILL_MD}
    taken = {"skill.md"}
    for name in names:
        name = unicodedata.normalize("NFC", name)
        prefixes = ["/".join(name.split("/")[: n + 1]) for n in range(name.count("/") + 1)]
        keys = {unicodedata.normalize("NFC", prefix.casefold()) for prefix in prefixes}
        clash = bool(keys & taken) or is_junk(name) or name.lower().endswith("skill.md")
        long = any(len(piece.encode()) > 255 for piece in name.split("/"))
        if not (clash or long or name[1:2] == ":"):
            taken |= keys
            tree[name] = draw(st.binary(max_size=200))
    return tree


def survives_everywhere(name: str) -> bool:
    return name.isprintable() or all(c.isprintable() or c == "\u3000" for c in name)


@FAST
@given(trees(), st.randoms(use_true_random=False))
def test_every_form_round_trips_to_one_digest(tree: dict[str, bytes], random: object) -> None:
    assume(all(survives_everywhere(name) for name in tree))
    executable = frozenset(name for name in tree if random.random() < 0.3)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        packages = [
            read_package(zipped(tree, executable=executable)),
            read_package(tarred(tree, executable=executable)),
            read_package(tarred(tree, executable=executable, gz=True)),
            read_package(uploaded(tree, executable=executable)),
            read_package(on_disk(Path(folder), tree, executable=executable)),
        ]
        assert len({package.digest for package in packages}) == 1
        for package in packages:
            assert {file.path: package.read(file.path) for file in package.files} == tree
            assert {f.path for f in package.files if f.executable} == executable


@FAST
@given(trees())
def test_the_upload_is_the_package_again(tree: dict[str, bytes]) -> None:
    assume(all(survives_everywhere(name) for name in tree))
    package = read_package(zipped(tree))
    stream = b"".join(to_tar(package, prefix="demo-skill"))
    assert read_package(stream).digest == package.digest
    assert stream == b"".join(to_tar(package, prefix="demo-skill"))
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        for member in archive:
            assert member.name.split("/")[0] == "demo-skill"
            assert (member.uid, member.gid, member.uname) == (0, 0, "root")
            assert member.mode == (0o755 if member.isdir() else 0o644)


def is_safe(package: Package) -> bool:
    for file in package.files:
        parts = file.path.split("/")
        if any(piece in ("", ".", "..") or len(piece.encode()) > 255 for piece in parts):
            return False
        if any(ord(c) < 32 or c in "\\\x7f" for c in file.path) or len(file.path.encode()) > 1024:
            return False
        if file.path[1:2] == ":" and file.path[0].isascii() and file.path[0].isalpha():
            return False
    folded = [unicodedata.normalize("NFC", file.path.casefold()) for file in package.files]
    return len(set(folded)) == len(folded)


evil = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["..", ".", "", "a", "A", "\0", "\\", "C:", "\n", "é", "e\u0301", "\u202e", "x" * 300, "~"]), max_size=6).map("/".join),
)  # fmt: skip


@FAST
@given(st.lists(evil, min_size=1, max_size=5), st.sampled_from(["zip", "tar", "upload"]))
@example(["../../etc/passwd"], "tar")
@example(["./C:/a"], "zip")
@example(["a", "a"], "upload")
def test_malicious_names_never_get_through(names: list[str], form: str) -> None:
    tree = {"SKILL.md": SKILL_MD, **dict.fromkeys(names, b"x")}
    try:
        builders: dict[str, Any] = {"zip": zipped, "tar": tarred, "upload": uploaded}
        source = builders[form](tree)
    except (UnicodeEncodeError, ValueError):
        return  # the archiver itself can't spell it
    with contextlib.suppress(PackageRefused):
        assert is_safe(read_package(source))


@settings(FAST, max_examples=150)
@given(
    st.binary(max_size=3_000),
    st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"---\n"]),
)
def test_arbitrary_bytes_are_refused_or_read(content: bytes, magic: bytes) -> None:
    with contextlib.suppress(PackageRefused):
        read_package(magic + content, limits=SMALL)


BASE = {
    "SKILL.md": SKILL_MD,
    "scripts/a.py": b"import os\n" * 40,
    "data.bin": bytes(range(256)) * 8,
}
ARCHIVES = [zipped(BASE), tarred(BASE), tarred(BASE, gz=True)]


@settings(FAST, max_examples=250)
@given(
    st.sampled_from(ARCHIVES),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=6
    ),
    st.floats(0, 1),
)
def test_mutated_archives_are_refused_or_safe(
    archive: bytes, edits: list[tuple[float, bytes]], keep: float
) -> None:
    mutated = bytearray(archive)
    for place, patch in edits:
        at = int(place * len(mutated))
        mutated[at : at + len(patch)] = patch
    if keep < 0.5:
        del mutated[int(keep * 2 * len(mutated)) :]
    with contextlib.suppress(PackageRefused):
        assert is_safe(read_package(bytes(mutated), limits=SMALL))


yaml_like = st.lists(
    st.one_of(
        st.sampled_from(["name: a", "description: b", "name:", "? x", ": y", "- z", "a: &b c", "*b", "<<: {}", "---", "...", "%YAML 1.2", "!!x y", "  c: d", "\t", "[", "{", "'", '"', "|", ">", "# c"]),
        st.text(max_size=20),
    ),
    max_size=10,
)  # fmt: skip


@settings(FAST, max_examples=250)
@given(yaml_like)
def test_any_frontmatter_is_read_or_refused(lines: list[str]) -> None:
    text = "\n".join(["---", "name: a", "description: b", *lines, "---", "body"])
    with contextlib.suppress(PackageRefused):
        package = read_package(text)
        assert package.name
        assert package.description
        for verdict in package.verdicts:
            assert all(problem.sentence and problem.code for problem in verdict.problems)
