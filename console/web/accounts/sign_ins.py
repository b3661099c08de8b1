"""Where a person is signed in, and how they end it."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from console.tenants import sign_ins
from console.web.accounts.browsers import in_words
from console.web.requests import ConsoleRequest, page

__all__ = ["end", "end_others", "listed"]

_DAY_S = 24 * 3600


def listed(request: ConsoleRequest) -> HttpResponse:
    rows = [
        {
            "sign_in": row,
            "browser": in_words(row.user_agent),
            "this": row.session_id == request.session.session_key,
        }
        for row in sign_ins.sign_ins_of(request.user)
    ]
    rows.sort(key=lambda row: not row["this"])
    context = {
        "rows": rows,
        "idle_days": settings.SESSION_COOKIE_AGE // _DAY_S,
        "most_days": settings.SIGN_IN_MAX_AGE_S // _DAY_S,
    }
    return page(request, "accounts/sign_ins.html", context, tab="sign-ins")


@require_POST
def end(request: ConsoleRequest, sign_in_id: str) -> HttpResponse:
    if not sign_ins.end(user=request.user, sign_in_id=sign_in_id, actor=request.principal.actor):
        raise Http404
    messages.success(request, _("That browser is signed out."))
    return redirect("web:sign-ins")


@require_POST
def end_others(request: ConsoleRequest) -> HttpResponse:
    count = sign_ins.end_all(
        user=request.user, actor=request.principal.actor, keep=request.session.session_key
    )
    words = ngettext(
        "%(count)d other browser is signed out.", "%(count)d other browsers are signed out.", count
    )
    messages.success(request, words % {"count": count})
    return redirect("web:sign-ins")
