"""Files of a package as text, and pieces of text fit to be shown to a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from skills.package.content import ContentStore

__all__ = [
    "LineCounter",
    "interpreter_of",
    "line_at",
    "marked",
    "read_text",
    "shebang_of",
    "spelled_out",
]

_BINARY_PROBE_BYTES = 8 * 1024
_EXCERPT_CHARACTERS = 200
_WINDOW_CHARACTERS = 1_000
"""How far left and right of a hit a line is looked at: minified files have lines of a megabyte."""

_INTERPRETERS: Mapping[str, str] = {
    "py": "python3", "pyw": "python3", "sh": "bash", "bash": "bash", "zsh": "zsh", "fish": "fish",
    "js": "node", "mjs": "node", "cjs": "node", "ts": "tsx", "mts": "tsx", "rb": "ruby",
    "pl": "perl", "php": "php", "r": "Rscript", "lua": "lua", "ps1": "pwsh", "bat": "cmd",
    "cmd": "cmd", "jl": "julia", "awk": "awk", "tcl": "tclsh",
}  # fmt: skip
_PLUMBING = frozenset({"env", "sudo"})


def read_text(content: ContentStore, path: str) -> str | None:
    """The file as text with its line ends untouched, or None for a binary file."""
    raw = content.read(path)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    if b"\0" in raw[:_BINARY_PROBE_BYTES]:
        return None
    return raw.decode("utf-8", "replace")


def shebang_of(text: str) -> str:
    """The program that the first line asks for (`python3`, `node`), or the empty string."""
    if not text.startswith("#!"):
        return ""
    line = text[2 : text.find("\n", 2, 512) if "\n" in text[:512] else 512]
    for word in line.split():
        program = word.rpartition("/")[2]
        if program in _PLUMBING or program.startswith("-") or "=" in program:
            continue
        return program
    return ""


def interpreter_of(path: str, text: str) -> str:
    """What runs this file, by its first line, else by its ending; empty for no script."""
    name = path.rpartition("/")[2]
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return shebang_of(text) or _INTERPRETERS.get(ending, "")


def marked(
    text: str, markers: Iterable[str], pattern: re.Pattern[str], most: int = 5_000
) -> list[re.Match[str]]:
    """Matches of a pattern that begin at one of some literal markers, by position, at most `most` looks a
    marker. A plain search for a literal is a hundred times as fast as a pattern that may begin anywhere."""
    found: dict[int, re.Match[str]] = {}
    for marker in markers:
        at, looks = text.find(marker), 0
        while at >= 0 and looks < most:
            looks += 1
            if match := pattern.match(text, at):
                found[at] = match
            at = text.find(marker, at + len(marker))
    return [found[at] for at in sorted(found)]


class LineCounter:
    """Line numbers for positions that only go up: every line is counted once."""

    def __init__(self, text: str) -> None:
        self._text, self._line, self._counted = text, 1, 0

    def at(self, position: int) -> int:
        if position < self._counted:
            self._line, self._counted = 1, 0
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line


def line_at(text: str, position: int) -> tuple[str, int]:
    """The line around a position, cut to a window, and where in that piece the position is."""
    start = text.rfind("\n", max(0, position - _WINDOW_CHARACTERS), position) + 1
    start = max(start, position - _WINDOW_CHARACTERS)
    end = text.find("\n", position, position + _WINDOW_CHARACTERS)
    end = position + _WINDOW_CHARACTERS if end < 0 else end
    return text[start:end], position - start


def spelled_out(piece: str, around: int = 0) -> str:
    """One line of at most 200 characters around a place in it; hidden characters as ⟨U+202E⟩."""
    if len(piece) > _EXCERPT_CHARACTERS:
        start = max(0, min(around - _EXCERPT_CHARACTERS // 2, len(piece) - _EXCERPT_CHARACTERS))
        piece = piece[start : start + _EXCERPT_CHARACTERS]
    return "".join(
        character
        if character.isprintable()
        else " "
        if character in "\t\r\n"
        else _named(character)
        for character in piece.strip()
    )


def _named(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
