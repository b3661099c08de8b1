"""Reads a package from whatever was handed in: list, judge every name, choose the root, then stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from skills.package.content import ContentStore
from skills.package.errors import PackageRefused, RootChoiceNeeded, refuse
from skills.package.frontmatter import Head, missing_field, read_head
from skills.package.names import NameGuard, clean_name, is_junk, printable
from skills.package.opening import PackageSource, open_source
from skills.package.roots import choose_root, find_roots, skill_md_of
from skills.package.safety import safety_report
from skills.package.sources import EntryKind, RawEntry, Source, is_bomb, measured
from skills.package.types import (
    LIMITS,
    Limits,
    Note,
    Package,
    PackageFile,
    Problem,
    RootCandidate,
)
from skills.package.verdicts import judge

__all__ = ["read_package"]

_MAX_PROBLEMS = 50
_MAX_CANDIDATES = 100
_MAX_VERSION_CHARACTERS = 64


def read_package(
    source: PackageSource, *, root: str | None = None, limits: Limits = LIMITS
) -> Package:
    """Read and judge one skill. Runs nothing, and writes nothing under a name from the package.

    `source` is a `Path` (a folder, an archive or a SKILL.md on disk), `bytes` or a binary stream (a zip,
    a tar, a tar.gz or a SKILL.md, told by its content), a `str` (a pasted SKILL.md), or an iterable of
    `UploadedFile` (a folder sent file by file). Streams are read from their start and left open.

    Raises RootChoiceNeeded when it holds several skills: call again with `root` set to one of the
    candidates. Raises PackageRefused for everything that can't be taken, and nothing else.
    """
    with closing(open_source(source, limits)) as opened:
        listed = _listed(opened, limits)
        paths = [entry.path for entry in listed.files]
        roots = find_roots(paths)
        chosen = choose_root(roots, root, paths)
        if chosen is None:
            raise RootChoiceNeeded(_candidates(opened, listed, roots, limits))
        content = ContentStore()
        try:
            return _package(opened, listed, roots, chosen, content, limits)
        except BaseException:
            content.close()
            raise


@dataclass(frozen=True, slots=True)
class _Listed:
    index: int
    path: str
    executable: bool
    packed_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Listing:
    files: list[_Listed]
    notes: list[Note]


def _listed(source: Source, limits: Limits) -> _Listing:
    """Every file that may be kept. Raises with all broken rules, up to a readable number."""
    guard = NameGuard()
    files: list[_Listed] = []
    junk: list[str] = []
    renamed: list[Note] = []
    problems: list[Problem] = []
    for index, entry in enumerate(source.listing()):
        if index >= limits.max_entries:
            raise refuse(
                "too_many_entries",
                f"The package lists more than {limits.max_entries:,} entries: pack only the "
                "skill's own folder.",
            )
        path = _judged(entry, guard, limits)
        if isinstance(path, Problem):
            problems.append(path)
            if len(problems) >= _MAX_PROBLEMS:
                break
        elif is_junk(path):
            junk.append(path)
        elif entry.kind is EntryKind.FILE:
            files.append(_Listed(index, path, entry.executable, entry.packed_bytes))
            if not entry.name.isascii() and entry.name != path and not entry.name.endswith(path):
                renamed.append(_renamed(path))
    if problems:
        raise PackageRefused(problems)
    if not files:
        raise refuse("archive_empty", "The package has no files: pack the skill's own folder.")
    notes = [*source.notes, *renamed]
    return _Listing(files, [*notes, _junk_note(junk)] if junk else notes)


def _judged(entry: RawEntry, guard: NameGuard, limits: Limits) -> str | Problem:
    path = clean_name(entry.name, limits)
    if isinstance(path, Problem):
        return path
    shown = printable(path)
    if entry.kind is EntryKind.LINK:
        return Problem(
            "entry_link", f"“{shown}” is a link: put the file itself in its place.", shown
        )
    if entry.kind is EntryKind.DEVICE:
        return Problem(
            "entry_special", f"“{shown}” is a device, pipe or sparse file: leave it out.", shown
        )
    if not path and entry.kind is EntryKind.FILE:
        return Problem("name_empty", "The package has a file without a name: pack it again.")
    if not path or is_junk(path):
        return path
    return guard.add(path, is_folder=entry.kind is EntryKind.FOLDER) or path


def _junk_note(junk: list[str]) -> Note:
    shown = ", ".join(printable(path) for path in junk[:5])
    more = f" and {len(junk) - 5} more" if len(junk) > 5 else ""
    return Note(
        "junk_dropped",
        f"Left out what is no part of the skill: {shown}{more}.",
        printable(junk[0]),
    )


def _renamed(path: str) -> Note:
    shown = printable(path)
    return Note(
        "name_normalised", f"“{shown}” is kept in Unicode form NFC, as Linux writes it.", shown
    )


def _candidates(
    source: Source, listing: _Listing, roots: tuple[str, ...], limits: Limits
) -> list[RootCandidate]:
    by_path = {entry.path: entry for entry in listing.files}
    found = []
    for root in roots[:_MAX_CANDIDATES]:
        entry = by_path[skill_md_of(root, by_path)]
        try:
            raw = _first_bytes(source.chunks(entry.index), limits.max_skill_md_bytes + 1)
            head = read_head(raw, entry.path, limits)
        except PackageRefused:
            found.append(RootCandidate(root))
            continue
        name, description = head.frontmatter.get("name"), head.frontmatter.get("description")
        found.append(RootCandidate(root, str(name or ""), str(description or "")))
    return found


def _first_bytes(chunks: Iterator[bytes], most: int) -> bytes:
    raw = b""
    for chunk in chunks:
        raw += chunk
        if len(raw) >= most:
            break
    return raw[:most]


def _package(
    source: Source,
    listing: _Listing,
    roots: tuple[str, ...],
    root: str,
    content: ContentStore,
    limits: Limits,
) -> Package:
    prefix = f"{root}/" if root else ""
    kept = [entry for entry in listing.files if entry.path.startswith(prefix)]
    if len(kept) > limits.max_files:
        raise refuse(
            "too_many_files",
            f"The skill has {len(kept):,} files; at most {limits.max_files:,} are taken: leave out "
            "what it does not need.",
        )
    files = _stored(source, kept, len(prefix), content, limits)
    skill_md_path = skill_md_of("", (file.path for file in files))
    raw = content.read(skill_md_path, limits.max_skill_md_bytes + 1)
    head = read_head(raw, skill_md_path, limits)
    name, description = _identity(head, skill_md_path)
    folder_name = root.rpartition("/")[2] or source.folder_name
    notes = [*listing.notes, *_head_notes(head, skill_md_path)]
    if outside := [entry.path for entry in listing.files if not entry.path.startswith(prefix)]:
        notes.append(_outside_note(outside, root))
    return Package(
        root=root,
        candidates=tuple(RootCandidate(found) for found in roots),
        skill_md_path=skill_md_path,
        name=name,
        description=description,
        version=_version(head),
        frontmatter=head.frontmatter,
        body=head.body,
        files=files,
        notes=tuple(notes),
        findings=safety_report(files, content),
        verdicts=judge(raw, head, skill_md_path, folder_name),
        content=content,
    )


def _stored(
    source: Source, kept: list[_Listed], cut: int, content: ContentStore, limits: Limits
) -> tuple[PackageFile, ...]:
    total = 0
    shown = ""

    def count(size_bytes: int) -> None:
        nonlocal total
        total += size_bytes
        if total > limits.max_total_bytes:
            raise refuse(
                "package_too_large",
                f"With “{shown}” the files have more than {limits.max_total_bytes:,} bytes "
                "together: leave out what the skill does not need.",
                shown,
            )
        if source.packed_bytes is not None and is_bomb(total, source.packed_bytes, limits):
            raise refuse(
                "compression_bomb",
                f"With “{shown}” the archive unpacks to more than {limits.max_ratio} times its "
                "size: leave out what the skill does not need.",
                shown,
            )

    files = []
    for entry in kept:
        path = entry.path[cut:]
        shown = printable(entry.path)
        chunks = measured(source.chunks(entry.index), entry.path, entry.packed_bytes, limits, count)
        size, sha256 = content.add(path, chunks)
        files.append(PackageFile(path, size, entry.executable, sha256))
    return tuple(sorted(files, key=lambda file: file.path))


def _identity(head: Head, entry: str) -> tuple[str, str]:
    problems = [
        problem
        for problem in (missing_field(head, field, entry) for field in ("name", "description"))
        if problem
    ]
    if problems:
        raise PackageRefused(problems)
    name = str(head.frontmatter["name"]).strip()
    # The name becomes a folder beside the release's own dot files, and a part of addresses.
    if (
        name.startswith((".", "-"))
        or not name.isprintable()
        or any(character in name for character in "/\\<>\"'`$")
        or len(name.encode()) > LIMITS.max_part_bytes
    ):
        shown = printable(name)
        raise refuse(
            "name_unsafe",
            f"The name “{shown}” can't be a folder's name: use letters, digits and hyphens.",
            entry,
            head.lines.get("name"),
        )
    return name, str(head.frontmatter["description"]).strip()


def _version(head: Head) -> str | None:
    version = head.scalars.get("version")
    if not version:
        metadata = head.frontmatter.get("metadata")
        version = str(metadata.get("version") or "") if isinstance(metadata, dict) else ""
    version = version.strip()[:_MAX_VERSION_CHARACTERS]
    return version if version.isprintable() and version else None


def _head_notes(head: Head, entry: str) -> list[Note]:
    notes = []
    if head.had_bom:
        notes.append(Note("bom_ignored", f"“{entry}” begins with a byte order mark.", entry))
    if head.had_crlf:
        notes.append(Note("crlf_read", f"“{entry}” has Windows line ends; they are kept.", entry))
    notes.extend(
        Note(
            "yaml_repaired",
            f"Line {repair.line} of “{entry}” is no valid YAML; it was read with the value in "
            "quotes.",
            entry,
            repair,
        )
        for repair in head.repairs
    )
    return notes


def _outside_note(outside: list[str], root: str) -> Note:
    shown = ", ".join(printable(path) for path in outside[:5])
    more = f" and {len(outside) - 5} more" if len(outside) > 5 else ""
    return Note(
        "outside_dropped",
        f"Left out what lies beside “{printable(root)}”: {shown}{more}.",
        printable(outside[0]),
    )
