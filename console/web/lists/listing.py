"""A list as one URL asks for it: these filters, this order, this page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from console.tenants.models import Space
from console.web.lists.export import FORMATS
from console.web.lists.filters import ListFilter
from console.web.requests import ConsoleRequest

if TYPE_CHECKING:
    from console.web.lists.page import BulkAction, Column, ListPage

__all__ = ["SIZES", "Chip", "Heading", "Listing"]

SIZES = (25, 50, 100, 200)
_USUAL_SIZE = 50


@dataclass(frozen=True, slots=True)
class Heading:
    """`url` sorts by the column, or turns its order round; empty if it can't be sorted by."""

    name: str
    label: Any
    number: bool
    url: str
    order: str
    """For `aria-sort`: ascending, descending or empty."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that holds, and the URL without it."""

    label: str
    value: str
    without: str


class Listing:
    """What `components/list.html` shows. Nothing is asked of the database before it is needed."""

    def __init__(
        self,
        definition: ListPage,
        request: ConsoleRequest,
        filters: ListFilter,
        space: Space | None,
    ) -> None:
        self.name = definition.name
        self.title = definition.title
        self.path = request.path
        self.filter = filters
        self.space = space
        self.hints = [
            _("“%(value)s” is no value of the filter “%(filter)s”, so it is left out.")
            % {"value": item.value, "filter": item.label}
            for item in filters.refused()
        ]
        self._request = request
        self._held = filters.held()
        self._columns = [
            column for column in definition.columns if not (space and column.name == "space")
        ]
        self._sort = self._chosen_sort(definition.sort)
        self._usual_sort = definition.sort
        self.size = self._chosen_size()
        self._actions = definition.actions
        if (wanted := request.GET.get("format", "")) and wanted not in FORMATS:
            self.hints.append(
                _("There is no export as “%(format)s”; choose CSV or JSON.")
                % {"format": wanted[:20]}
            )

    @cached_property
    def matching(self) -> QuerySet[Any]:
        """Every row that the filters leave in, in order; the order is the same at every look."""
        column = self._column(self._sort)
        falling = self._sort.startswith("-")
        field = F(column.sort)
        last = True if column.nullable else None
        first = field.desc(nulls_last=last) if falling else field.asc(nulls_last=last)
        # Rows that are equal in this column stay in the order of their making.
        ties = [] if column.sort == "pk" else ["-pk" if falling else "pk"]
        return self.filter.qs.order_by(first, *ties)

    @cached_property
    def rows(self) -> Page[Any]:
        paginator = Paginator(self._keys, self.size)
        asked = self._request.GET.get("page", "1")
        first = list(self._keys[: self.size + 1]) if asked == "1" else None
        if first is not None and len(first) <= self.size:
            # That is all: counting would look through the whole table once more.
            paginator.count = len(first)
        found = paginator.get_page(asked)
        if asked != str(found.number):
            self.hints.append(
                _("There is no page “%(page)s”; this is page %(number)d.")
                % {"page": asked[:20], "number": found.number}
            )
        keys = list(found.object_list) if first is None else first[: self.size]
        found.object_list = self._fetched(keys)
        return found

    @property
    def _keys(self) -> QuerySet[Any]:
        """Only these are put in order, not whole rows with what hangs on them."""
        return self.matching.prefetch_related(None).values_list("pk", flat=True)

    def _fetched(self, keys: list[Any]) -> list[Any]:
        found = self.filter.rows.in_bulk(keys)
        return [found[key] for key in keys if key in found]

    @property
    def count(self) -> int:
        return self.rows.paginator.count

    @property
    def filtered(self) -> bool:
        return bool(self._held)

    @property
    def headings(self) -> Iterator[Heading]:
        present = self._sort.removeprefix("-")
        for column in self._columns:
            if not column.label:
                continue
            order, target = "", f"-{column.name}" if column.falling else column.name
            if column.name == present:
                falling = self._sort.startswith("-")
                order = "descending" if falling else "ascending"
                target = column.name if falling else f"-{column.name}"
            url = self._url(sort=target, page="") if column.sort else ""
            yield Heading(column.name, column.label, column.number, url, order)

    @property
    def chips(self) -> list[Chip]:
        return [
            Chip(item.label, item.value, self._url(**{item.name: "", "page": ""}))
            for item in self._held
        ]

    @property
    def all_url(self) -> str:
        """The whole list, in the same order."""
        return self._url(page="", **dict.fromkeys((item.name for item in self._held), ""))

    @property
    def sizes(self) -> list[tuple[int, str]]:
        """Each page size with its URL; that of the present one is empty. None where any would show all."""
        if self.count <= SIZES[0]:
            return []
        return [
            (size, "" if size == self.size else self._url(size=str(size), page=""))
            for size in SIZES
        ]

    @property
    def pages(self) -> dict[str, str]:
        """URLs of the first, previous, next and last page, where there are such."""
        rows, last = self.rows, self.rows.paginator.num_pages
        numbers: dict[str, int] = {}
        if rows.has_previous():
            numbers |= {"first": 1, "previous": rows.number - 1}
        if rows.has_next():
            numbers |= {"next": rows.number + 1, "last": last}
        return {name: self._url(page=str(number)) for name, number in numbers.items()}

    @property
    def exports(self) -> list[tuple[str, str]]:
        return [(name.upper(), self._url(format=name, page="", size="")) for name in FORMATS]

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What a change of the filters leaves as it is."""
        kept = [("sort", self._sort)] if self._sort != self._usual_sort else []
        return kept + ([("size", str(self.size))] if self.size != _USUAL_SIZE else [])

    @property
    def query(self) -> str:
        """The filters, the space among them, for what happens to the chosen rows."""
        values = {item.name: self._request.GET[item.name] for item in self._held}
        return urlencode({**values, **({"space": self.space.pk} if self.space else {})})

    @property
    def back(self) -> str:
        """The list with these filters, wherever the request went."""
        path = reverse(f"web:{self.name}")
        return f"{path}?{self.query}" if self.query else path

    @cached_property
    def actions(self) -> list[BulkAction]:
        """Those that the reader may do to some row at least."""
        principal = self._request.principal
        return [action for action in self._actions if principal.may_somewhere(action.right)]

    def _column(self, sort: str) -> Column:
        name = sort.removeprefix("-")
        return next(column for column in self._columns if column.name == name)

    def _chosen_sort(self, usual: str) -> str:
        asked = self._request.GET.get("sort", "")
        if not asked or asked == usual:
            return usual
        if asked.removeprefix("-") in {column.name for column in self._columns if column.sort}:
            return asked
        self.hints.append(
            _("This list has no order by “%(name)s”; it is in its usual one.")
            % {"name": asked[:60]}
        )
        return usual

    def _chosen_size(self) -> int:
        asked = self._request.GET.get("size", "")
        if asked in map(str, SIZES):
            return int(asked)
        if asked:
            self.hints.append(
                _("“%(size)s” is no page size; choose one below the list.") % {"size": asked[:20]}
            )
        return _USUAL_SIZE

    def _url(self, **changes: str) -> str:
        """This page with the changes; what is empty falls away."""
        values = {item.name: self._request.GET[item.name] for item in self._held}
        values |= dict(self.kept)
        if self.rows.number > 1:
            values["page"] = str(self.rows.number)
        query = urlencode({name: value for name, value in {**values, **changes}.items() if value})
        return f"{self.path}?{query}" if query else self.path
