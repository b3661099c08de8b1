"""The values that a package is made of: frozen, JSON-ready where they meet people.

Sizes are bytes, lines and columns count from 1, paths are POSIX and relative to the skill's root.
Every `code` is stable: pages, the API and other programs may rely on it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from skills.package.content import ContentStore

__all__ = [
    "LIMITS",
    "Finding",
    "Limits",
    "Note",
    "Package",
    "PackageFile",
    "Problem",
    "Repair",
    "RootCandidate",
    "Severity",
    "Verdict",
    "VerdictKind",
]

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What a package may weigh. Counted while reading, never taken from an archive's headers."""

    max_files: int = 2_000
    """Files that are kept: below the skill's root, without junk."""
    max_entries: int = 20_000
    """Everything that an archive or a folder lists, dropped things included."""
    max_total_bytes: int = 256 * MIB
    max_file_bytes: int = 32 * MIB
    max_archive_bytes: int = 256 * MIB
    """The archive as it was sent, still packed."""
    max_ratio: int = 100
    """Unpacked bytes per packed byte, for one file and for the whole archive."""
    ratio_floor_bytes: int = MIB
    """Below this many unpacked bytes the ratio is not judged: small files of blanks are harmless."""
    max_part_bytes: int = 255
    """One part of a path, in UTF-8 bytes: what Linux file systems allow."""
    max_path_bytes: int = 1_024
    max_depth: int = 32
    max_skill_md_bytes: int = MIB
    max_frontmatter_bytes: int = 64 * KIB


LIMITS = Limits()


class Severity(enum.StrEnum):
    INFO = "info"
    """Worth knowing before approval; nothing is wrong."""
    WARNING = "warning"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: `sentence` names the thing, the rule and the mend."""

    code: str
    sentence: str
    entry: str = ""
    line: int | None = None
    warning: bool = False
    """True where the rule is only advice: it does not turn a verdict."""

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "sentence": self.sentence,
            "entry": self.entry,
            "line": self.line,
            "warning": self.warning,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """A line of SKILL.md that was read as if it said `after`. The file itself is kept as it is."""

    line: int
    before: str
    after: str

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was dropped or repaired on the way in."""

    code: str
    sentence: str
    entry: str = ""
    repair: Repair | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "sentence": self.sentence,
            "entry": self.entry,
            "repair": self.repair.to_json() if self.repair else None,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the safety report. Secrets in `excerpt` are masked, hidden characters spelled out."""

    severity: Severity
    code: str
    sentence: str
    path: str
    line: int | None = None
    column: int | None = None
    excerpt: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity.value,
            "code": self.code,
            "sentence": self.sentence,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "excerpt": self.excerpt,
        }


class VerdictKind(enum.StrEnum):
    STRICT = "strict"
    """The Agent Skills specification, as its reference validator reads it."""
    WEKNORA = "weknora"
    """What a WeKnora 0.7 server accepts: it counts bytes and reserves words."""
    LENIENT = "lenient"
    """What this reader accepts: anything that a client following the client guide would load."""


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: VerdictKind
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return all(problem.warning for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "ok": self.ok,
            "problems": [problem.to_json() for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class RootCandidate:
    """A folder in the source that holds a SKILL.md. `root` is what `read_package(root=...)` takes;
    the source's own top is the empty string. `name` and `description` are empty when unreadable."""

    root: str
    name: str = ""
    description: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "name": self.name, "description": self.description}


@dataclass(frozen=True, slots=True)
class PackageFile:
    path: str
    size_bytes: int
    executable: bool
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "executable": self.executable,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class Package:
    """A skill that was read and may be kept. Its content lies in an anonymous temporary store:
    close the package, or use it as a context manager, to let go of it early.
    """

    root: str
    """Where in the source the skill was found; empty for the source's own top."""
    candidates: tuple[RootCandidate, ...]
    skill_md_path: str
    name: str
    description: str
    version: str | None
    frontmatter: Mapping[str, Any]
    body: str
    files: tuple[PackageFile, ...]
    """Sorted by path."""
    notes: tuple[Note, ...]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    content: ContentStore = field(repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Identity of the content: hex SHA-256, independent of how the package was sent."""
        return digest_of(self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def file(self, path: str) -> PackageFile:
        """Raises KeyError when the package has no such file."""
        for file in self.files:
            if file.path == path:
                return file
        raise KeyError(path)

    def read(self, path: str) -> bytes:
        """The whole content of one file. Raises KeyError when there is none."""
        return self.content.read(path)

    def stream(self, path: str) -> Iterator[bytes]:
        """The content of one file in chunks. Raises KeyError when there is none."""
        return self.content.stream(path)

    def verdict(self, kind: VerdictKind) -> Verdict:
        return next(verdict for verdict in self.verdicts if verdict.kind is kind)

    def close(self) -> None:
        """Let go of the content. Idempotent."""
        self.content.close()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def digest_of(files: Iterable[PackageFile]) -> str:
    """SHA-256 over the sorted (path, executable bit, content hash) of every file.

    Lengths lead every path so that no two different trees can spell the same bytes.
    """
    total = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path.encode()):
        path = file.path.encode()
        total.update(b"%d:%s %d " % (len(path), path, file.executable))
        total.update(bytes.fromhex(file.sha256))
    return total.hexdigest()
