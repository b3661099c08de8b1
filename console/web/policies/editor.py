"""The policy editor: what its form says, and everything the page shows about that."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _

from console.fleet.policies import Affected, affected
from console.policies.changes import Change, changes
from console.policies.drafts import Draft, Remark
from console.policies.enforcement import enforcement, unenforceable
from console.policies.models import NetworkPolicyRevision
from console.policies.presets import PRESETS, matching
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest

__all__ = ["Form", "Preview", "around", "edited_revision", "editor", "small_number"]

LISTS = ("allow", "deny")
_REVISIONS_A_PAGE = 20
_BETWEEN = re.compile(r"[\s,;，；]+")


def small_number(text: str) -> int | None:
    """What a form or an address names; None for anything else, such as more than a database can hold."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


@dataclass(slots=True)
class Form:
    """What the browser has: rows as they are on the page, each of which may hold several entries."""

    outbound: bool
    inbound: bool
    rows: dict[str, list[str]]
    number: int
    """The revision that is being edited."""
    reason: str = ""
    focus: str = ""
    """Where the next key goes: a row, as `allow:3`, or `preview`."""

    @classmethod
    def of(cls, draft: Draft, *, number: int, reason: str = "") -> Form:
        rows = {"allow": list(draft.allow), "deny": list(draft.deny)}
        return cls(draft.outbound, draft.inbound, rows, number, reason)

    @classmethod
    def posted(cls, data: QueryDict) -> Form:
        number = small_number(data.get("number", ""))
        if number is None:
            raise InvalidRequest(_("The form is incomplete; load the page again."))
        return cls(
            "outbound" in data,
            "inbound" in data,
            {name: data.getlist(name) for name in LISTS},
            number,
            data.get("reason", "")[:300].strip(),
        )

    def draft(self) -> Draft:
        allow, deny = (tuple(entry for _row, entry in self._entries(name)) for name in LISTS)
        return Draft(outbound=self.outbound, inbound=self.inbound, allow=allow, deny=deny)

    def _entries(self, name: str) -> list[tuple[int, str]]:
        """With the row in which each stands."""
        return [
            (row, entry)
            for row, text in enumerate(self.rows[name])
            for entry in _BETWEEN.split(text)
            if entry
        ]

    def shown(self, remarks: dict[tuple[str, int], list[Remark]]) -> dict[str, list[Row]]:
        """By list, the rows with what is to be said of each."""
        found = {
            name: [Row(name, index, text, []) for index, text in enumerate(self.rows[name])]
            for name in LISTS
        }
        rows_of = {name: [row for row, _entry in self._entries(name)] for name in LISTS}
        for (name, place), said in remarks.items():
            found[name][rows_of[name][place]].remarks.extend(said)
        return found

    def spread(self) -> None:
        """One entry a row, and an empty row to type the next one in."""
        for name in LISTS:
            self.rows[name] = [entry for _row, entry in self._entries(name)] + [""]

    def add_row(self, name: str) -> None:
        self.spread()
        if name in LISTS:
            self.focus = f"{name}:{len(self.rows[name]) - 1}"

    def remove_row(self, which: str) -> None:
        """`which` is a list and a row, as `allow:3`."""
        name, _colon, text = which.partition(":")
        row = small_number(text)
        if name in LISTS and row is not None and row < len(self.rows[name]):
            del self.rows[name][row]
            self.focus = f"{name}:{row}"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    index: int
    text: str
    remarks: list[Remark]

    @property
    def id(self) -> str:
        return f"{self.name}-{self.index}"

    @property
    def place(self) -> str:
        return f"{self.name}:{self.index}"

    @property
    def number(self) -> int:
        return self.index + 1

    @property
    def bad(self) -> bool:
        return any(remark.bad for remark in self.remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What saving would change, what it can't do, and whom it concerns.

    `theirs` is what others saved since this editor began; `changes` is then against the revision that
    was edited, else against the present one.
    """

    bad: int
    advised: int
    changes: list[Change]
    theirs: list[Change]
    overtaken: bool
    unenforceable: list[str]
    affected: Affected
    preset: str

    @property
    def savable(self) -> bool:
        return bool(self.changes) and not (self.bad or self.unenforceable or self.overtaken)


def editor(space: Space, present: NetworkPolicyRevision, form: Form) -> dict[str, Any]:
    """The context of the form and of its preview."""
    draft = form.draft()
    checked = draft.check()
    overtaken = form.number != present.number
    base = Draft.of(edited_revision(space, present, form.number).policy())
    wanted = checked.policy
    return {
        "form": form,
        "lists": form.shown(checked.remarks),
        "preview": Preview(
            bad=checked.bad,
            advised=checked.advised,
            changes=changes(base, draft),
            theirs=changes(base, Draft.of(present.policy())) if overtaken else [],
            overtaken=overtaken,
            unenforceable=unenforceable(wanted, space.backend.capabilities) if wanted else [],
            affected=affected(space, present),
            preset=matching(wanted) if wanted else "",
        ),
        "presets": PRESETS.values(),
        "revision": present,
        "space": space,
    }


def edited_revision(
    space: Space, present: NetworkPolicyRevision, number: int
) -> NetworkPolicyRevision:
    """The revision that the form began with. InvalidRequest if there is none of that number."""
    if number == present.number:
        return present
    revision = space.policy_revisions.filter(number=number).first()
    if revision is None:
        raise InvalidRequest(_("There is no such revision of the policy; load the page again."))
    return revision


def around(space: Space, page_number: str | None) -> dict[str, Any]:
    """What stands beside the form: what the backend does with a policy, and the history."""
    return {
        "promises": enforcement(space.backend.capabilities),
        "history": _history(space, page_number),
    }


def _history(space: Space, page_number: str | None) -> Page[NetworkPolicyRevision]:
    """Newest first, each with what it changed as `changed`."""
    revisions = space.policy_revisions.select_related("created_by")
    rows = Paginator(revisions, _REVISIONS_A_PAGE).get_page(page_number)
    shown = list(rows.object_list)
    before = revisions.filter(number__lt=shown[-1].number)[:1] if shown else []
    for row, older in itertools.pairwise([*shown, *before]):
        row.changed = changes(Draft.of(older.policy()), Draft.of(row.policy()))  # type: ignore[attr-defined]
    rows.object_list = shown
    return rows
