"""Acting on many rows of a list: choose, confirm, watch, try the rest again."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRefresh

from console.web.bulk import runs
from console.web.bulk.lists import ITEMS
from console.web.bulk.registry import pages
from console.web.lists import BulkAction, ListPage
from console.web.models import BulkRun
from console.web.requests import ConsoleRequest, page

_TYPED_FROM = 20
"""So many rows of what can't be undone are confirmed by typing their number."""


@require_POST
def choose(request: ConsoleRequest) -> HttpResponse:
    """Freeze the chosen rows, or all that match the filters in the query, and ask for confirmation."""
    chosen_in, action = _definition(request.POST.get("list", ""), request.POST.get("action", ""))
    listing = chosen_in.listing(request)
    rows = listing.matching
    if request.POST.get("all") != "1":
        rows = rows.filter(pk__in=request.POST.getlist("row"))
    elif listing.hints:
        # Without that filter more would match than somebody saw.
        messages.error(request, " ".join([*listing.hints, _("Nothing was chosen.")]))
        return redirect(listing.back)
    run = runs.choose(
        principal=request.principal,
        user=request.user,
        page=chosen_in,
        action=action,
        rows=rows,
        query=listing.query,
    )
    if run is None:
        messages.warning(request, _("Choose at least one row first."))
        return redirect(listing.back)
    return redirect("web:bulk-run", run.pk)


def _definition(list_name: str, action_name: str) -> tuple[ListPage, BulkAction]:
    found = pages().get(list_name)
    action = found.action(action_name) if found else None
    if found is None or action is None:
        raise Http404
    return found, action


def _run(request: ConsoleRequest, run_id: str) -> tuple[BulkRun, ListPage, BulkAction]:
    """Runs are their maker's alone."""
    row = BulkRun.objects.filter(pk=run_id, user=request.user).first()
    if row is None:
        raise Http404
    return row, *_definition(row.list_name, row.action)


@require_GET
def run(request: ConsoleRequest, run_id: str) -> HttpResponseBase:
    """What it would do until it is confirmed, how far it is, and what became of each row."""
    row, chosen_in, action = _run(request, run_id)
    if row.started_at is None and row.finished_at is None:
        return _confirmation(request, row, chosen_in, action)
    if request.htmx and request.htmx.target == "progress" and row.finished_at:
        return HttpResponseClientRefresh()
    return ITEMS.respond(
        request,
        rows=row.items.all(),
        context={"run": row, "action": action, "counts": row.counts(), **_places(row, chosen_in)},
        area=row.list_name,
    )


def _confirmation(
    request: ConsoleRequest,
    row: BulkRun,
    chosen_in: ListPage,
    action: BulkAction,
    status: int = 200,
) -> HttpResponse:
    chosen = runs.chosen_rows(row, request.principal)
    count = row.items.count()
    return page(
        request,
        "bulk/confirm.html",
        {
            "run": row,
            "action": action,
            "question": action.question % {"count": count},
            "consequences": action.consequences(chosen),
            "count": count,
            "names": row.items.values_list("label", flat=True)[:10],
            "more": max(count - 10, 0),
            "typed": _typed(action, count),
            "mistyped": status == 422,
            **_places(row, chosen_in),
        },
        area=row.list_name,
        status=status,
    )


def _places(row: BulkRun, chosen_in: ListPage) -> dict[str, object]:
    back = reverse(f"web:{row.list_name}")
    return {"title": chosen_in.title, "back": f"{back}?{row.query}" if row.query else back}


def _typed(action: BulkAction, count: int) -> bool:
    return action.irreversible and count >= _TYPED_FROM


@require_POST
def start(request: ConsoleRequest, run_id: str) -> HttpResponse:
    row, chosen_in, action = _run(request, run_id)
    count = row.items.count()
    if _typed(action, count) and request.POST.get("count", "").strip() != str(count):
        return _confirmation(request, row, chosen_in, action, status=422)
    runs.start(row)
    return redirect("web:bulk-run", row.pk)


@require_POST
def stop(request: ConsoleRequest, run_id: str) -> HttpResponse:
    row, _page, _action = _run(request, run_id)
    runs.stop(row)
    return redirect("web:bulk-run", row.pk)


@require_POST
def retry(request: ConsoleRequest, run_id: str) -> HttpResponse:
    """Everything that was not done, chosen anew."""
    row, _page, _action = _run(request, run_id)
    following = runs.retry(row)
    if following is None:
        messages.info(request, _("Everything was done; there is nothing to try again."))
        return redirect("web:bulk-run", row.pk)
    return redirect("web:bulk-run", following.pk)
