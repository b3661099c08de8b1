"""Routes of the pages."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "web"
urlpatterns: list[URLPattern | URLResolver] = []
