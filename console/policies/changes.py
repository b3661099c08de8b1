"""What differs between two policies as they are edited, and one person's change put on top of another's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.policies.drafts import Draft

__all__ = ["Change", "changes", "merge"]


@dataclass(frozen=True, slots=True)
class Change:
    """`sign` is "+", "-" or, for a switch, "±"."""

    sign: str
    what: str


def changes(before: Draft, after: Draft) -> list[Change]:
    """In words of the reader's language: switches first, then what went, then what came."""
    before, after = before.normal(), after.normal()
    found = []
    if before.outbound != after.outbound:
        words = _("outbound: open") if after.outbound else _("outbound: closed")
        found.append(Change("±", words))
    if before.inbound != after.inbound:
        words = _("inbound: open") if after.inbound else _("inbound: closed")
        found.append(Change("±", words))
    for words, old, new in (
        (_("allow %(entry)s"), set(before.allow), set(after.allow)),
        (_("deny %(entry)s"), set(before.deny), set(after.deny)),
    ):
        found += [Change("-", words % {"entry": entry}) for entry in sorted(old - new)]
        found += [Change("+", words % {"entry": entry}) for entry in sorted(new - old)]
    return found


def merge(*, base: Draft, theirs: Draft, mine: Draft) -> Draft:
    """`theirs` with what `mine` changed of `base`. Both had the same start, so no change of one can
    contradict a change of the other; the result may still be refused, as when one opened
    outbound and the other allowed a domain."""
    base, theirs, mine = base.normal(), theirs.normal(), mine.normal()
    return Draft(
        outbound=mine.outbound if mine.outbound != base.outbound else theirs.outbound,
        inbound=mine.inbound if mine.inbound != base.inbound else theirs.inbound,
        allow=_merged(base.allow, theirs.allow, mine.allow),
        deny=_merged(base.deny, theirs.deny, mine.deny),
    )


def _merged(
    base: Collection[str], theirs: Collection[str], mine: Collection[str]
) -> tuple[str, ...]:
    taken, added = set(base) - set(mine), set(mine) - set(base)
    return tuple(sorted((set(theirs) - taken) | added))
