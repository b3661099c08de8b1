"""The list of what became of each row of a run."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from console.web.lists import ChoiceFilter, Column, ListFilter, ListPage, SearchFilter
from console.web.models import BulkItem, BulkOutcome

__all__ = ["ITEMS"]


class ItemFilter(ListFilter):
    at_hand = ("q", "outcome")

    q = SearchFilter("label", "reason", label=_("Name or reason"))
    outcome = ChoiceFilter(
        choices=BulkOutcome.choices, label=_("Outcome"), any_label=_("Any outcome")
    )


ITEMS = ListPage(
    name="bulk-run",
    title=_("Many at once"),
    template="bulk/run.html",
    # Only ever asked for the rows of one run, of which its view makes sure whose it is.
    rows=lambda principal: BulkItem.objects.none(),
    filters=ItemFilter,
    columns=(
        Column("number", value=lambda item: item.pk, sort="pk"),
        Column("label", _("Name"), sort="label"),
        Column("target"),
        Column("outcome", _("Outcome"), sort="outcome"),
        Column("reason", _("Reason"), sort="reason"),
        Column("finished_at", _("When"), sort="finished_at", falling=True, nullable=True),
    ),
    sort="number",
)
