"""The skills of builds and releases, as their lists show them and are filtered by them."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Model, Prefetch
from django.utils.translation import gettext_lazy as _

from console.web.lists.filters import Rows
from skills.models import SkillVersion

__all__ = ["SkillFilter", "skill_names", "skills_in_brief"]


class SkillFilter(django_filters.CharFilter):
    """Rows with a skill of such a name. `items` is the model of their skills, `row_key` their key to the row."""

    def __init__(self, items: type[Model], row_key: str) -> None:
        super().__init__(label=_("Skill"), max_length=64)
        self.items = items
        self.row_key = row_key

    def filter(self, qs: Rows, value: str) -> Rows:
        if not value:
            return qs
        # From the few versions of that name to the rows, not from each row to its skills.
        versions = SkillVersion.objects.filter(skill__name__icontains=value)
        having = self.items._default_manager.filter(version__in=versions)
        return qs.filter(pk__in=having.values(self.row_key))


def skills_in_brief(items: type[Model], row_key: str) -> Prefetch[Any]:
    """Names and numbers only: what was found in a package is large."""
    rows = items._default_manager.select_related("version__skill").only(
        row_key, "position", "version__number", "version__skill__name"
    )
    return Prefetch("items", queryset=rows)


def skill_names(row: Any) -> list[str]:
    """“pdf #3” of each, for exports."""
    return [str(item.version) for item in row.items.all()]
