"""The API's description: `/api/schema/` for programs, `/api/docs/` for people. Both are open: they tell
what this version can do, and nothing of this installation."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from console.api.errors import KINDS
from console.api.reference.document import operations, rendered

__all__ = ["docs", "schema"]

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_KEPT = {"Cache-Control": "public, max-age=300"}


@login_not_required
@require_safe
async def schema(request: HttpRequest) -> HttpResponse:
    """OpenAPI 3, as JSON or (`?format=yaml`) YAML."""
    kind = "yaml" if request.GET.get("format") == "yaml" else "json"
    body = await sync_to_async(rendered, thread_sensitive=False)(kind)
    media = "application/yaml" if kind == "yaml" else "application/json"
    return HttpResponse(body, content_type=media, headers=_KEPT)


@login_not_required
@require_safe
async def docs(request: HttpRequest) -> HttpResponse:
    """A page without any script."""
    body = await sync_to_async(_page, thread_sensitive=False)()
    return HttpResponse(body, headers={**_KEPT, "Content-Security-Policy": _POLICY})


def _page() -> str:
    kinds = [(kind, status, code) for kind, (status, code) in KINDS.items()]
    return render_to_string("api/docs.html", {"tags": operations(), "kinds": kinds})
