"""Sentences that a console may show in another language: the template and its values, apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Sentence", "gettext_noop"]


def gettext_noop(text: str) -> str:
    """Marks a text for the translators' catalog, whose tools know this name."""
    return text


@dataclass(frozen=True, slots=True)
class Sentence:
    """`str()` of it is English; whoever translates formats the translated template."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format(**self.values)
