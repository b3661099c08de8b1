"""Which names a package may use: the guard between an archive and a file system.

Everything is refused that any file system, archive tool or shell could read as another place:
absolute paths, drives, backslashes, `..`, control and direction characters, and pairs of names that are the
same file where case or Unicode form don't count.
"""

from __future__ import annotations

import re
import unicodedata

from skills.package.types import Limits, Problem

__all__ = ["NameGuard", "clean_name", "is_junk", "printable"]

_DRIVE = re.compile(r"(?:\./+)*[A-Za-z]:")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DECEPTIVE = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\U000e0000-\U000e007f\ufeff]")
_JUNK_PARTS = frozenset({"__MACOSX", ".git", ".hg", ".svn", "__pycache__"})
_JUNK_NAMES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
_SHOWN_CHARACTERS = 120


def printable(name: str) -> str:
    """The name as it can be shown and logged: one line, nothing hidden, not too long."""
    shown = "".join(
        character
        if character.isprintable() and not 0xD800 <= ord(character) <= 0xDFFF
        # A lone surrogate is a byte that was no UTF-8; spell out every other one as well.
        else f"\\u{ord(character):04x}"
        for character in name[: 2 * _SHOWN_CHARACTERS]
    )
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 1] + "…"


def is_junk(path: str) -> bool:
    """Left behind by an operating system, a version control system or an interpreter."""
    parts = path.split("/")
    return (
        not _JUNK_PARTS.isdisjoint(parts)
        or parts[-1] in _JUNK_NAMES
        or any(part.startswith("._") for part in parts)
    )


def clean_name(raw: str, limits: Limits) -> str | Problem:
    """The path in NFC without a leading `./` or a trailing slash, or the rule that it breaks."""
    code, rule = _broken_rule(raw, limits)
    if code:
        shown = printable(raw)
        return Problem(code, f"“{shown}” {rule}", shown)
    parts = [part for part in unicodedata.normalize("NFC", raw).split("/") if part not in ("", ".")]
    return "/".join(parts)


def _broken_rule(raw: str, limits: Limits) -> tuple[str, str]:
    if "\0" in raw:
        return "name_nul", "has a NUL character in its name: rename it."
    if _CONTROL.search(raw):
        return "name_control", "has a control character in its name: rename it."
    try:
        encoded = unicodedata.normalize("NFC", raw).encode()
    except UnicodeEncodeError:
        return "name_not_utf8", "has a name that is not UTF-8: pack it again with UTF-8 names."
    if _DECEPTIVE.search(raw):
        return (
            "name_hidden",
            "has invisible or direction-changing characters in its name: rename it.",
        )
    if "\\" in raw:
        return "name_backslash", "has a backslash in its name: pack it again with forward slashes."
    if raw.startswith("/"):
        return "name_absolute", "is an absolute path: pack the folder with relative paths."
    if _DRIVE.match(raw):
        return "name_drive", "begins with a drive letter: pack the folder with relative paths."
    parts = encoded.split(b"/")
    if b".." in parts:
        return "name_traversal", "climbs out of the package with “..”: pack the skill's own folder."
    if len(parts) > limits.max_depth:
        return "name_too_deep", f"lies deeper than {limits.max_depth} folders: flatten it."
    if any(len(part) > limits.max_part_bytes for part in parts):
        return "name_part_too_long", (
            f"has a part longer than {limits.max_part_bytes} bytes: shorten it."
        )
    if len(encoded) > limits.max_path_bytes:
        return "name_too_long", f"is longer than {limits.max_path_bytes} bytes: shorten the path."
    return "", ""


class _Place:
    """One known part of a path: how it was spelled and what lies below it."""

    __slots__ = ("below", "is_file", "spelling")

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling
        self.is_file: bool | None = None  # None: a folder that was only implied so far
        self.below: dict[str, _Place] = {}


class NameGuard:
    """Remembers every name of one source and finds two that would be the same file."""

    def __init__(self) -> None:
        self._top = _Place("")

    def add(self, path: str, *, is_folder: bool) -> Problem | None:
        """Take in one clean path; returns the rule that it breaks beside the earlier ones."""
        place = self._top
        for part in path.split("/"):
            if place.is_file:
                return _conflict(path)
            key = unicodedata.normalize("NFC", part.casefold())
            below = place.below.setdefault(key, _Place(part))
            if below.spelling != part:
                return _collision(path, below.spelling)
            place = below
        if place.is_file and not is_folder:
            shown = printable(path)
            return Problem(
                "name_duplicate", f"“{shown}” is in the package twice: pack it again.", shown
            )
        if place.is_file or (not is_folder and (place.below or place.is_file is False)):
            return _conflict(path)
        place.is_file = not is_folder
        return None


def _collision(path: str, other_part: str) -> Problem:
    shown = printable(path)
    return Problem(
        "name_collision",
        f"“{shown}” is the same file as one spelled “{printable(other_part)}” where case and "
        "Unicode form do not count: rename one of them.",
        shown,
    )


def _conflict(path: str) -> Problem:
    shown = printable(path)
    return Problem(
        "name_conflict",
        f"“{shown}” is a file and a folder at the same time: pack the folder again.",
        shown,
    )
