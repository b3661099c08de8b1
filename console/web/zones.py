"""In which time zone a reader sees times: the one they chose, else their browser's, else UTC."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest

__all__ = ["COOKIE", "choices", "zone_of"]

COOKIE = "time_zone"
"""The browser's own zone, which a script of every page writes down."""

_NOT_OFFERED = ("Etc/", "SystemV/", "US/", "Mexico/", "Chile/", "Brazil/", "Canada/")


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=1)
def choices() -> list[tuple[str, list[tuple[str, str]]]]:
    """Grouped by region, as a form's choices; UTC has its own group."""
    regions: dict[str, list[tuple[str, str]]] = {"UTC": [("UTC", "UTC")]}
    for name in sorted(_known()):
        region, _slash, place = name.partition("/")
        if place and not name.startswith(_NOT_OFFERED):
            regions.setdefault(region, []).append((name, place.replace("_", " ")))
    return list(regions.items())


def zone_of(request: HttpRequest) -> ZoneInfo:
    for name in (getattr(request.user, "time_zone", ""), request.COOKIES.get(COOKIE, "")):
        if name in _known():
            return ZoneInfo(name)
    return ZoneInfo("UTC")
