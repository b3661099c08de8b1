"""Every unsafe shape is refused with a stable code, and the entry is named."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from skills.package import LIMITS, Limits, PackageRefused, read_package
from tests.skills.package.builders import (
    SKILL_MD,
    on_disk,
    tarred,
    tarred_entry,
    uploaded,
    zipped,
    zipped_entry,
)


def refusal_of(source: object, **options: object) -> PackageRefused:
    with pytest.raises(PackageRefused) as refusal:
        read_package(source, **options)  # type: ignore[arg-type]
    assert str(refusal.value)
    assert refusal.value.to_json()["code"] == refusal.value.code
    return refusal.value


UNSAFE_NAMES = {
    "../evil": "name_traversal",
    "a/../../evil": "name_traversal",
    "a/..": "name_traversal",
    "/etc/passwd": "name_absolute",
    "C:evil": "name_drive",
    "c:/evil": "name_drive",
    ".//./c:/evil": "name_drive",
    "a\\b": "name_backslash",
    "..\\evil": "name_backslash",
    "a\0.txt": "name_nul",
    "a\nb": "name_control",
    "a\x7f": "name_control",
    "a\x85": "name_control",
    "a\u202egpj.exe": "name_hidden",
    "a\U000e0041": "name_hidden",
    "a" * 256: "name_part_too_long",
    "文" * 86: "name_part_too_long",
    "/".join(["a" * 200] * 6): "name_too_long",
    "/".join("a" * 40): "name_too_deep",
}


@pytest.mark.parametrize("name", UNSAFE_NAMES, ids=lambda name: repr(name[:20]))
@pytest.mark.parametrize("form", ["zip", "tar", "upload"])
def test_unsafe_names(name: str, form: str) -> None:
    tree = {"SKILL.md": SKILL_MD, name: b"x"}
    if form == "tar" and "\0" in name:
        return  # a tar header can't spell it
    source = {"zip": zipped, "tar": tarred, "upload": uploaded}[form](tree)
    refusal = refusal_of(source)
    assert refusal.code == UNSAFE_NAMES[name]
    assert refusal.entry
    assert refusal.entry.isprintable()


def test_every_unsafe_entry_is_listed() -> None:
    refusal = refusal_of(zipped({"SKILL.md": SKILL_MD, "../a": b"", "/b": b"", "c": b""}))
    assert [problem.code for problem in refusal.problems] == ["name_traversal", "name_absolute"]
    assert [problem.entry for problem in refusal.problems] == ["../a", "/b"]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["Readme.md", "README.md"], "name_collision"),
        (["scripts/a.py", "Scripts/b.py"], "name_collision"),
        (["stra\u00dfe", "STRASSE"], "name_collision"),
        (["a", "a/b"], "name_conflict"),
        (["a/b", "a"], "name_conflict"),
    ],
)
def test_names_that_are_one_file_elsewhere(names: list[str], code: str) -> None:
    refusal = refusal_of(zipped({"SKILL.md": SKILL_MD, **dict.fromkeys(names, b"x")}))
    assert (refusal.code, refusal.entry) == (code, names[1])


def test_names_that_differ_in_unicode_form_only() -> None:
    tree = {"SKILL.md": SKILL_MD, "caf\u00e9": b"x", "cafe\u0301": b"y"}
    assert refusal_of(zipped(tree)).code == "name_duplicate"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice() -> None:
    archive = zipped_entry("SKILL.md", stat.S_IFREG | 0o644)
    assert refusal_of(archive).code == "name_duplicate"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (stat.S_IFLNK, "entry_link"),
        (stat.S_IFCHR, "entry_special"),
        (stat.S_IFBLK, "entry_special"),
        (stat.S_IFIFO, "entry_special"),
        (stat.S_IFSOCK, "entry_special"),
    ],
)
def test_special_entries_of_a_zip(kind: int, code: str) -> None:
    refusal = refusal_of(zipped_entry("odd", kind | 0o777, b"/etc/passwd"))
    assert (refusal.code, refusal.entry) == (code, "odd")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (tarfile.SYMTYPE, "entry_link"),
        (tarfile.LNKTYPE, "entry_link"),
        (tarfile.CHRTYPE, "entry_special"),
        (tarfile.BLKTYPE, "entry_special"),
        (tarfile.FIFOTYPE, "entry_special"),
        (b"Z", "entry_special"),
    ],
)
def test_special_entries_of_a_tar(kind: bytes, code: str) -> None:
    info = tarfile.TarInfo("odd")
    info.type, info.linkname = kind, "SKILL.md"
    refusal = refusal_of(tarred_entry(info))
    assert (refusal.code, refusal.entry) == (code, "odd")


def test_a_sparse_file_of_a_tar() -> None:
    info = tarfile.TarInfo("odd")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(10**12)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    assert refusal_of(out.getvalue()).code == "entry_special"


def test_links_and_pipes_in_a_folder(tmp_path: Path) -> None:
    folder = on_disk(tmp_path / "a", {"SKILL.md": SKILL_MD})
    (folder / "link").symlink_to("/etc/passwd")
    assert refusal_of(folder).code == "entry_link"
    (folder / "link").unlink()
    (folder / "dir").symlink_to("/etc")
    assert refusal_of(folder).entry == "dir"
    (folder / "dir").unlink()
    os.mkfifo(folder / "pipe")
    assert refusal_of(folder).code == "entry_special"


def test_setuid_is_dropped() -> None:
    package = read_package(zipped_entry("run", stat.S_IFREG | stat.S_ISUID | 0o6755))
    assert package.file("run").executable


def test_an_encrypted_entry() -> None:
    archive = bytearray(zipped({"SKILL.md": SKILL_MD}))
    flags = archive.index(b"PK\x01\x02") + 8
    archive[flags] |= 1
    refusal = refusal_of(bytes(archive))
    assert (refusal.code, refusal.entry) == ("entry_encrypted", "SKILL.md")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_without_a_memory_bound(method: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("SKILL.md", SKILL_MD)
    assert refusal_of(out.getvalue()).code == "compression_unsupported"


class TestBombs:
    def test_one_file_of_zeros(self) -> None:
        refusal = refusal_of(zipped({"SKILL.md": SKILL_MD, "zeros": bytes(5_000_000)}))
        assert (refusal.code, refusal.entry) == ("compression_bomb", "zeros")

    def test_a_gzip_of_zeros(self) -> None:
        tree = {"SKILL.md": SKILL_MD, "zeros": bytes(5_000_000)}
        assert refusal_of(tarred(tree, gz=True)).code == "compression_bomb"

    def test_many_small_files_of_zeros(self) -> None:
        tree = {"SKILL.md": SKILL_MD, **{f"{n}": bytes(900_000) for n in range(8)}}
        assert refusal_of(zipped(tree)).code == "compression_bomb"

    def test_headers_that_lie_about_the_size(self) -> None:
        archive = bytearray(zipped({"zeros": bytes(5_000_000), "SKILL.md": SKILL_MD}))
        central = archive.index(b"PK\x01\x02")
        struct.pack_into("<I", archive, central + 24, 10)  # uncompressed size
        assert refusal_of(bytes(archive)).code in ("archive_corrupt", "compression_bomb")
        struct.pack_into("<I", archive, central + 24, 5_000_000)
        struct.pack_into("<I", archive, central + 20, 2**31)  # packed size, to please the ratio
        assert refusal_of(bytes(archive)).code in ("archive_corrupt", "compression_bomb")

    def test_small_blank_files_are_harmless(self) -> None:
        assert read_package(zipped({"SKILL.md": SKILL_MD, "blank": bytes(500_000)})).files

    def test_an_archive_in_the_archive_stays_packed(self) -> None:
        inner = zipped({"zeros": bytes(50_000_000)})
        package = read_package(zipped({"SKILL.md": SKILL_MD, "inner.zip": inner}))
        assert package.file("inner.zip").size_bytes == len(inner)


@pytest.mark.parametrize(
    ("limits", "tree", "code"),
    [
        (Limits(max_files=2), {"a": b"", "b": b""}, "too_many_files"),
        (Limits(max_entries=2), {"a": b"", "b": b""}, "too_many_entries"),
        (Limits(max_file_bytes=100), {"a": b"x" * 101}, "file_too_large"),
        (Limits(max_total_bytes=150), {"a": b"x" * 90, "b": b"y" * 90}, "package_too_large"),
        (Limits(max_archive_bytes=50), {}, "archive_too_large"),
        (Limits(max_skill_md_bytes=20), {}, "skill_md_too_large"),
        (Limits(max_frontmatter_bytes=20), {}, "frontmatter_too_large"),
    ],
)
def test_limits(limits: Limits, tree: dict[str, bytes], code: str) -> None:
    full = {"SKILL.md": SKILL_MD, **tree}
    for form in (zipped, tarred):
        assert refusal_of(form(full), limits=limits).code == code
    if code != "archive_too_large":
        assert refusal_of(uploaded(full), limits=limits).code == code


def test_the_published_limits() -> None:
    mib = 1024 * 1024
    assert (LIMITS.max_files, LIMITS.max_ratio) == (2_000, 100)
    assert (LIMITS.max_total_bytes, LIMITS.max_file_bytes) == (256 * mib, 32 * mib)
    assert (LIMITS.max_part_bytes, LIMITS.max_path_bytes) == (255, 1_024)
    assert LIMITS.max_skill_md_bytes == mib


ZIP, TAR, TAR_GZ = (form({"SKILL.md": SKILL_MD * 99}) for form in (
    zipped, tarred, lambda tree: tarred(tree, gz=True)))  # fmt: skip


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"", "archive_empty"),
        (zipped({}), "archive_empty"),
        (zipped({"a/": b""}), "archive_empty"),
        (ZIP[: len(ZIP) // 2], "archive_corrupt"),
        (ZIP[:-1], "archive_corrupt"),
        (TAR[:700], "archive_corrupt"),
        (TAR[: 512 * 14], "archive_corrupt"),
        (TAR[: 512 * 15], "archive_corrupt"),
        (TAR_GZ[: len(TAR_GZ) // 2], "archive_corrupt"),
        (TAR_GZ[:-4], "archive_corrupt"),
        (TAR_GZ + b"rest", "archive_corrupt"),
        (gzip.compress(b"no tar"), "archive_corrupt"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "format_unsupported"),
        (b"Rar!\x1a\x07\x01\x00" + bytes(100), "format_unsupported"),
        (b"BZh91AY&SY" + bytes(100), "format_unsupported"),
        (b"\xfd7zXZ\x00" + bytes(100), "format_unsupported"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "format_unsupported"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "format_unknown"),
    ],
)
def test_broken_archives(source: bytes, code: str) -> None:
    assert refusal_of(source).code == code


def test_a_changed_byte_is_noticed() -> None:
    archive = bytearray(ZIP)
    archive[60] ^= 0xFF
    assert refusal_of(bytes(archive)).code == "archive_corrupt"


def test_a_broken_header_is_not_taken_for_the_end() -> None:
    archive = bytearray(tarred({"SKILL.md": SKILL_MD, "lost.txt": b"x"}))
    archive[1024 + 10] ^= 0xFF
    assert refusal_of(bytes(archive)).code == "archive_corrupt"


def test_a_tar_header_with_a_negative_size() -> None:
    """Older standard libraries loop on it for ever (CVE-2025-8194)."""
    info = tarfile.TarInfo("a")
    block = bytearray(info.tobuf())
    block[124:136] = b"\xff" * 12
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    assert refusal_of(bytes(block) + bytes(1024)).code == "archive_corrupt"


def test_a_tar_header_that_claims_gigabytes_is_not_allocated() -> None:
    info = tarfile.TarInfo("a")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    assert refusal_of(info.tobuf() + bytes(10_240)).code == "archive_corrupt"


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "none.zip").code == "source_unreadable"
    assert refusal_of(tmp_path).code == "archive_empty"
