"""The handbook: the files of `docs/`, readable for whoever is signed in."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_GET

from console.web.help import documents
from console.web.requests import ConsoleRequest, page


@require_GET
def index(request: ConsoleRequest) -> HttpResponse:
    return page(request, "help/index.html", {"documents": documents.documents()}, area="help")


@require_GET
def show(request: ConsoleRequest, name: str) -> HttpResponse:
    document = documents.document(name)
    if document is None:
        raise Http404
    return page(request, "help/page.html", {"document": document}, area="help")


@require_GET
def image(request: ConsoleRequest, name: str) -> HttpResponse:
    path = documents.image(name)
    if path is None:
        raise Http404
    response = HttpResponse(path.read_bytes(), content_type="image/png")
    response.headers["Cache-Control"] = "private, max-age=3600"
    return response
