"""Strings that look like credentials: found, named, and never shown.

Every pattern begins with a literal marker that is looked for first; a text without markers costs little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skills.package.texts import marked

__all__ = ["SecretString", "mask_secrets", "secret_strings"]

_KINDS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("an AWS access key", ("AKIA", "ASIA"), re.compile(r"A[KS]IA[0-9A-Z]{16}\b")),
    ("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), re.compile(r"gh._[A-Za-z0-9]{30,255}")),
    ("a GitHub token", ("github_pat_",), re.compile(r"github_pat_[A-Za-z0-9_]{20,255}")),
    ("a GitLab token", ("glpat-",), re.compile(r"glpat-[A-Za-z0-9_-]{20,255}")),
    ("a Slack token", ("xox",), re.compile(r"xox[abeoprs]-[A-Za-z0-9-]{10,255}")),
    ("an API key", ("sk-",), re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,255}")),
    ("a Stripe key", ("sk_live_", "rk_live_"), re.compile(r"[sr]k_live_[A-Za-z0-9]{16,255}")),
    ("a Google API key", ("AIza",), re.compile(r"AIza[0-9A-Za-z_-]{35}")),
    ("a Hugging Face token", ("hf_",), re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,255}")),
    ("an npm token", ("npm_",), re.compile(r"npm_[A-Za-z0-9]{36}\b")),
    ("a PyPI token", ("pypi-AgE",), re.compile(r"pypi-AgE[A-Za-z0-9_-]{30,512}")),
    ("a web token", ("eyJ",), re.compile(r"eyJ[\w-]{10,2048}\.eyJ[\w-]{10,4096}\.[\w-]{10,1024}")),
    ("a private key", ("-----BEGIN ",), re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----")),
    ("a password in an address", ("://",), re.compile(r"://([^\s/:@\"'<>{}$]{1,128}:[^\s/:@\"'<>{}$]{3,256})@")),
)  # fmt: skip
_WORDS = tuple(
    spelling
    for word in ("key", "token", "secret", "passw", "pwd")
    for spelling in (word, word.upper(), word.capitalize())
)
_ASSIGNED = re.compile(
    r"(?:key|token|secret|password|passwd|pwd)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']([^\"'\s]{12,512})[\"']",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"^[<\[{$%]|your|xxx|example|placeholder|change|insert|replace|\.\.\.|env|\$\{|dummy|test|[*]{3}",
    re.IGNORECASE,
)
_WINDOW_CHARACTERS = 600
_MAX_ASSIGNED = 500
_MAX_LOOKS = 5_000
"""Quoted assignments looked at in one file; the other patterns have no such bound."""


@dataclass(frozen=True, slots=True)
class SecretString:
    start: int
    end: int
    kind: str
    masked: str


def secret_strings(text: str) -> Iterator[SecretString]:
    """Every likely credential with its place. Bounded work on any input."""
    for kind, markers, pattern in _KINDS:
        for match in marked(text, markers, pattern, _MAX_LOOKS):
            group = pattern.groups
            yield _secret(match.start(group), match[group], kind)
    yield from _assigned(text)


def mask_secrets(piece: str) -> str:
    """The piece with every likely credential replaced; for excerpts and logs."""
    for secret in sorted(secret_strings(piece), key=lambda secret: secret.start, reverse=True):
        piece = piece[: secret.start] + secret.masked + piece[secret.end :]
    return piece


def _secret(start: int, value: str, kind: str) -> SecretString:
    return SecretString(start, start + len(value), kind, f"{value[:4]}…({len(value)} characters)")


def _assigned(text: str) -> Iterator[SecretString]:
    """`api_key = "…"` and the like. Words are found by plain search: a case-blind pattern over a whole
    file would cost a hundred times as much."""
    seen: set[int] = set()
    for word in _WORDS:
        at, looks = text.find(word), 0
        while at >= 0 and looks < _MAX_LOOKS and len(seen) < _MAX_ASSIGNED:
            looks += 1
            if _assigns(text, at + len(word)):
                match = _ASSIGNED.match(text, at, at + _WINDOW_CHARACTERS)
                if match and match.start(1) not in seen and not _PLACEHOLDER.search(match[1]):
                    seen.add(match.start(1))
                    yield _secret(match.start(1), match[1], "a password or key")
            at = text.find(word, at + len(word))


def _assigns(text: str, after: int) -> bool:
    if text[after : after + 1] not in "oOdD\"' \t:=":  # the rest of passw(ord) too
        return False
    nearby = text[after : after + 14]
    return "=" in nearby or ":" in nearby
