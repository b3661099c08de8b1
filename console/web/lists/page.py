"""What a list is made of, and how a request for it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils.functional import Promise

from console.audit.services import Actor
from console.fleet.runtime import Runtime
from console.tenants.access import Action, Principal
from console.tenants.models import Space
from console.web.lists.export import FORMATS, export
from console.web.lists.filters import ListFilter
from console.web.lists.listing import Listing
from console.web.requests import ConsoleRequest, page

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

__all__ = ["BulkAction", "Column", "Job", "ListPage", "Owner", "maker", "others"]

Text = str | Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a row is: what the right to act on it is asked of."""

    tenant_id: str
    space_id: str | None = None

    @classmethod
    def by_space(cls, row: Any) -> Owner:
        return cls(tenant_id=row.space.tenant_id, space_id=row.space_id)


def maker(row: Any) -> str | None:
    """The name of who made a row; None once that account is gone."""
    return row.created_by and str(row.created_by.get_username())


@dataclass(frozen=True, slots=True)
class Column:
    """`name` is stable: it stands in URLs and exports. Without a label it is in exports only."""

    name: str
    label: Text = ""
    value: Callable[[Any], Any] | None = None
    """What exports carry; the attribute of that name unless given."""
    sort: str = ""
    """The field to order by; empty if the column can't be ordered by."""
    falling: bool = False
    """The first click puts the greatest first: times, sizes, counts."""
    nullable: bool = False
    number: bool = False

    def of(self, row: Any) -> Any:
        return self.value(row) if self.value else getattr(row, self.name)


@dataclass(frozen=True, slots=True)
class Job:
    """Who acts on many rows, and what reaches their sandboxes."""

    principal: Principal
    runtime: Runtime

    @property
    def actor(self) -> Actor:
        return self.principal.actor


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """Something that may be done to many rows, one after the other, by a worker (`console.web.bulk`)."""

    name: str
    """Noun and verb, as the audit log has it."""
    label: Text
    right: Action
    """Asked of every row."""
    apply: Callable[[Job, Any], Awaitable[str]]
    """Idempotent; writes the audit log. Returns a remark, mostly empty. A `SandboxError` refuses the row:
    its sentence is the reason."""
    question: _StrPromise
    """“Destroy %(count)d sessions?”"""
    consequences: Callable[[QuerySet[Any]], list[str]]
    """Sentences with what it means for these rows, counted now."""
    danger: bool = True
    irreversible: bool = False
    """Many at once have to be confirmed by their number."""


def others(sentence: str, count: int) -> list[str]:
    """For `consequences`: what becomes of the rest, where there is a rest."""
    return [sentence % {"count": count}] if count else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    name: str
    """Of the route, the file names of exports, and bulk runs."""
    title: Text
    template: str
    rows: Callable[[Principal], QuerySet[Any]]
    """Whatever this reader may see, with what a row shows fetched along."""
    filters: type[ListFilter]
    columns: tuple[Column, ...]
    sort: str
    """The order unless the URL says another: a column's name, `-` before it turns it round."""
    actions: tuple[BulkAction, ...] = ()
    owner: Callable[[Any], Owner] = lambda row: Owner(tenant_id="")
    """Of a row; without it nobody but the platform's admin may act on one."""
    label: Callable[[Any], str] = str
    """What people call a row, apart from the page it stands on."""

    def respond(
        self,
        request: ConsoleRequest,
        *,
        space: Space | None = None,
        rows: QuerySet[Any] | None = None,
        context: dict[str, Any] | None = None,
        area: str = "",
        status: int = 200,
    ) -> HttpResponseBase:
        """The page, or the file that `?format=` asks for. `rows` instead of all that may be seen."""
        listing = self.listing(request, space=space, rows=rows)
        if request.GET.get("format") in FORMATS:
            return export(self, listing.matching, request.GET["format"])
        return page(
            request,
            self.template,
            {
                "listing": listing,
                "space": space,
                "layout": "spaces/base.html" if space else "base.html",
                **(context or {}),
            },
            area="spaces" if space else area or self.name,
            tab=self.name,
            status=status,
        )

    def listing(
        self,
        request: ConsoleRequest,
        *,
        space: Space | None = None,
        rows: QuerySet[Any] | None = None,
    ) -> Listing:
        if rows is None:
            rows = self.rows(request.principal)
        if space is not None:
            rows = rows.filter(space=space)
        return Listing(self, request, self.filters(rows, request=request, space=space), space)

    def action(self, name: str) -> BulkAction | None:
        return next((action for action in self.actions if action.name == name), None)
