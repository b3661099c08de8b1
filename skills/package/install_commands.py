"""Install commands as people write them in prose, comments and scripts. Read, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skills.package.texts import line_at

__all__ = ["InstallCommand", "install_commands", "pipes_to_shell"]

_MARKERS = ("install", " add ", " ci", "npm i ", "npx ", "bunx ", "uvx ", "dlx ", "go get ")
_COMMAND = re.compile(
    r"(?<![\w./-])(?P<manager>pip3?|pipx|uv|conda|mamba|micromamba|poetry|pdm|npm|pnpm|yarn|bun|"
    r"apt-get|apt|aptitude|apk|brew|dnf|yum|pacman|cargo|gem|go|dotnet|playwright|npx|bunx|uvx)"
    r"(?P<options>(?:[ \t]+--?[A-Za-z][\w=./:-]{0,80}){0,8})"
    r"(?:[ \t]+(?P<verb>pip install|tool install|global add|install|add|ci|get|i|dlx))?(?=[ \t`'\")]|$)"
)
_RUNNERS = {"npx": "npm", "bunx": "npm", "uvx": "pip"}
_KINDS = {
    "pip": "pip", "pip3": "pip", "pipx": "pip", "uv": "pip", "poetry": "pip", "pdm": "pip",
    "npm": "npm", "pnpm": "npm", "yarn": "npm", "bun": "npm",
    "apt": "apt", "apt-get": "apt", "aptitude": "apt",
}  # fmt: skip
_ENDS = re.compile(r"[$;|&`#)>\r\n]|\\$|\s-{2}\s")
_VALUED_OPTIONS = frozenset(
    {"-r", "-c", "-t", "-i", "-f", "-o", "-e", "--requirement", "--constraint", "--index-url",
     "--extra-index-url", "--find-links", "--target", "--prefix", "--python", "--editable", "--group",
     "--registry", "--package", "-p"}
)  # fmt: skip
_PIPE_TO_SHELL = re.compile(
    r"\b(?:curl|wget)\b[^|\n]{0,500}\|[ \t]*(?:sudo[ \t]+(?:-\S+[ \t]+)?)?(?:ba|z|da|k)?sh\b"
    r"|\b(?:ba|z)?sh[ \t]+(?:-c[ \t]+[\"']?\$\(|<\()[ \t]*(?:curl|wget)\b"
)
_MAX_PER_TEXT = 500
_MAX_LOOKS = 5_000
"""Lines looked at for one marker in one file."""


@dataclass(frozen=True, slots=True)
class InstallCommand:
    position: int
    kind: str
    """`pip`, `npm`, `apt`, or `other` for managers that a build does not use."""
    manager: str
    packages: tuple[str, ...]
    """As written; nothing is validated yet."""


def install_commands(text: str) -> Iterator[InstallCommand]:
    """Every install command in the text, at most a few hundred."""
    seen: set[int] = set()
    for marker in _MARKERS:
        at, looks = text.find(marker), 0
        while at >= 0 and len(seen) < _MAX_PER_TEXT and looks < _MAX_LOOKS:
            looks += 1
            piece, inside = line_at(text, at)
            start = at - inside
            if start not in seen:
                found = list(_in_line(piece, start))
                if found:
                    seen.add(start)
                    yield from found
            at = text.find(marker, start + len(piece))


def pipes_to_shell(text: str) -> Iterator[int]:
    """Where a download is handed to a shell (`curl … | sh`), as positions."""
    for marker in ("curl", "wget"):
        at, looks = text.find(marker), 0
        while at >= 0 and looks < _MAX_LOOKS:
            looks += 1
            piece, inside = line_at(text, at)
            start = at - inside
            if ("|" in piece or "(" in piece) and (match := _PIPE_TO_SHELL.search(piece)):
                yield start + match.start()
            at = text.find(marker, start + len(piece))


def _in_line(piece: str, start: int) -> Iterator[InstallCommand]:
    for match in _COMMAND.finditer(piece):
        manager = match["manager"]
        kind = _KINDS.get(manager, "other")
        if manager in _RUNNERS:
            kind = _RUNNERS[manager]
        elif match["verb"] is None or (manager, match["verb"]) in (
            ("uv", "install"),
            ("go", "add"),
            ("npm", "get"),
        ):
            continue
        packages = _packages(piece, match, single=manager in _RUNNERS)
        yield InstallCommand(start + match.start(), kind, manager, packages)


def _packages(piece: str, match: re.Match[str], *, single: bool) -> tuple[str, ...]:
    rest = piece[match.end() :]
    if end := _ENDS.search(rest.replace(">=", "\0\0").replace("=>", "\0\0")):
        rest = rest[: end.start()]
    words, skip = [], False
    for word in rest.split():
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _VALUED_OPTIONS
        elif bare := word.strip("\"'`,()[]{}*").rstrip(".:"):
            words.append(bare + ("]" if "[" in bare and "]" not in bare else ""))
    # In the middle of a sentence only the first word is surely a package.
    return tuple(words[:1] if single or not _stands_alone(piece, match) else words)


def _stands_alone(piece: str, match: re.Match[str]) -> bool:
    before = piece[: match.start()].strip()
    if before.count("`") % 2:
        return True
    before = re.sub(r"^[#>$%*\-\d.) \t]{0,16}", "", before)
    return before in ("", "sudo", "RUN", "!", "python -m", "python3 -m", "then", "|| true") or (
        before.endswith(("&&", ";", "||", "run:", "sudo", "python -m", "python3 -m"))
    )
