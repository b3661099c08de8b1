"""The lists whose rows many may be acted on at once."""

from __future__ import annotations

from functools import cache

from console.web.lists import ListPage

__all__ = ["pages"]


@cache
def pages() -> dict[str, ListPage]:
    """By name. The areas are imported late: their pages know of this package too."""
    from console.web.builds.lists import BUILDS
    from console.web.catalog.lists import CATALOG
    from console.web.keys.lists import KEYS
    from console.web.releases.lists import RELEASES
    from console.web.sessions.lists import SESSIONS

    return {page.name: page for page in (SESSIONS, BUILDS, RELEASES, KEYS, CATALOG)}
