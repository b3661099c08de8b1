"""All URLs of the console. Default deny: a view without a rule of access needs a sign-in."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("api/", include("console.api.urls")),
    path("", include("console.web.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
]
