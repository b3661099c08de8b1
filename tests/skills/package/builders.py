"""Small packages in every form, for the tests of this folder."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from skills.package import Package, UploadedFile, read_package

SKILL_MD = b"---\nname: demo-skill\ndescription: Makes a demo. Use for tests.\n---\n# Demo\n"
Tree = Mapping[str, bytes]


def zipped(tree: Tree, *, executable: frozenset[str] = frozenset()) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in tree.items():
            archive.writestr(_zip_info(name, name in executable), content)
    return out.getvalue()


def _zip_info(name: str, executable: bool) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo()
    # Set by hand: the constructor cuts a name at a NUL.
    info.filename = info.orig_filename = name
    info.create_system = 3
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return info


def zipped_entry(name: str, mode: int, content: bytes = b"x") -> bytes:
    """A good skill and one more entry with a POSIX mode of its own."""
    out = io.BytesIO(zipped({"SKILL.md": SKILL_MD}))
    with zipfile.ZipFile(out, "a") as archive:
        info = _zip_info(name, executable=False)
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return out.getvalue()


def tarred(tree: Tree, *, executable: frozenset[str] = frozenset(), gz: bool = False) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in tree.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if name in executable else 0o644
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue()) if gz else out.getvalue()


def tarred_entry(info: tarfile.TarInfo, content: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        skill = tarfile.TarInfo("SKILL.md")
        skill.size = len(SKILL_MD)
        archive.addfile(skill, io.BytesIO(SKILL_MD))
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def uploaded(tree: Tree, *, executable: frozenset[str] = frozenset()) -> list[UploadedFile]:
    return [
        UploadedFile(name, content, 0o755 if name in executable else 0o644)
        for name, content in tree.items()
    ]


def on_disk(folder: Path, tree: Tree, *, executable: frozenset[str] = frozenset()) -> Path:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name in executable else 0o644)
    return folder


def skill(extra: Tree | None = None, *, skill_md: bytes = SKILL_MD) -> Package:
    return read_package(uploaded({"SKILL.md": skill_md, **(extra or {})}))
