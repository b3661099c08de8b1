"""The page of a backend has words for whatever the contract can promise."""

from __future__ import annotations

from dataclasses import asdict, fields

from django.utils.translation import override

from console.web.backends.abilities import abilities
from sandboxes.backends.cube.client import CAPABILITIES


def test_every_capability_has_words_in_both_languages() -> None:
    names = [field.name for field in fields(CAPABILITIES) if field.name != "notes"]
    told = {}
    for language in ("en", "zh-hans"):
        with override(language):
            told[language] = abilities(asdict(CAPABILITIES))
    assert len(told["en"]) == len(names)
    for english, chinese in zip(told["en"], told["zh-hans"], strict=True):
        assert english.kept == chinese.kept
        assert english.what != chinese.what
        assert not english.note or english.note != chinese.note


def test_a_backend_that_was_never_checked_has_none() -> None:
    assert abilities({}) == []
