"""Characters that a person does not see and a model or an interpreter does.

Direction overrides can make code read differently from what runs ("Trojan Source"); tag characters and
variation selectors carry whole hidden sentences to a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skills.package.types import Severity

__all__ = ["HiddenRun", "hidden_runs"]

_HIDDEN = (
    re.compile(
        "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
        "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]+"
    ),
    re.compile("[\U000e0000-\U000e01ef]+"),
)
_JOINERS = "\u200c\u200d"
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_TAGS = re.compile("[\U000e0000-\U000e007f]")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_FLAG_BASE = "\U0001f3f4"
_FLAG_TAGS = re.compile("[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""Flags of regions (England, Scotland) are a black flag and a few tags: the only honest use."""
_SHOWN = 8
_ASCII = bytes(range(128))


@dataclass(frozen=True, slots=True)
class HiddenRun:
    position: int
    code: str
    severity: Severity
    sentence: str


def hidden_runs(text: str) -> Iterator[HiddenRun]:
    """Every run of hidden characters that has no honest reason to be where it is."""
    if text.isascii():
        return
    # Most texts hide nothing: look at what is left without ASCII before looking for places.
    rest = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "replace")
    for pattern in _HIDDEN:
        if not pattern.search(rest):
            continue
        for match in pattern.finditer(text):
            run, start = match[0], match.start()
            if not _honest(text, run, start, match.end()):
                yield _described(run, start)


def _honest(text: str, run: str, start: int, end: int) -> bool:
    if (start == 0 and run == "\ufeff") or ("\ufe00" <= run <= "\ufe0f" and len(run) == 1):
        return True
    before, after = text[start - 1 : start], text[end : end + 1]
    if run in _JOINERS:
        # Emoji and several scripts are written with joiners; ASCII never is.
        return bool(before and after) and not before.isascii() and not after.isascii()
    return before == _FLAG_BASE and _FLAG_TAGS.fullmatch(run) is not None


def _described(run: str, start: int) -> HiddenRun:
    names = " ".join(f"U+{ord(character):04X}" for character in run[:_SHOWN])
    names += f" and {len(run) - _SHOWN} more" if len(run) > _SHOWN else ""
    if _BIDI.search(run):
        sentence = f"Direction-changing characters ({names}): what is shown is not what is read."
        return HiddenRun(start, "hidden_bidi", Severity.DANGER, sentence)
    if _TAGS.search(run):
        hidden = "".join(
            chr(ord(character) - 0xE0000)
            for character in run
            if 0xE0020 <= ord(character) < 0xE007F
        )
        sentence = f"Invisible tag characters ({names}) that spell “{hidden[:120]}”."
        return HiddenRun(start, "hidden_tags", Severity.DANGER, sentence)
    if _SELECTORS.search(run):
        sentence = f"A run of variation selectors ({names}), which can carry hidden text."
        return HiddenRun(start, "hidden_selectors", Severity.DANGER, sentence)
    return HiddenRun(
        start, "hidden_zero_width", Severity.WARNING, f"Invisible characters ({names})."
    )
