"""What several lists read, or leave unread, of the rows that hang on theirs."""

from __future__ import annotations

from typing import Any

from django.db.models import Model, Prefetch

__all__ = ["LARGE_OF_BACKENDS", "LARGE_OF_RELEASES", "skill_names", "skills_in_brief"]

LARGE_OF_BACKENDS = ("backend__settings", "backend__secrets", "backend__capabilities")
LARGE_OF_RELEASES = ("release__sizes", "release__packages")
"""Takes long to read or decrypt, and no list shows it."""


def skills_in_brief(items: type[Model], row_key: str) -> Prefetch[Any]:
    """Names and numbers only: what was found in a package is large. `items` is the model of the rows'
    skills, `row_key` their key to the row."""
    rows = items._default_manager.select_related("version__skill").only(
        row_key, "position", "version__number", "version__skill__name"
    )
    return Prefetch("items", queryset=rows)


def skill_names(row: Any) -> list[str]:
    """“pdf #3” of each, for exports."""
    return [str(item.version) for item in row.items.all()]
