"""The lists of the console: filter, sort, page, choose, export. One machinery for every list page.

An area says what its list is (`ListPage`): rows, filters, columns, actions; its template says how a row
looks (`components/list.html`).
"""

from console.web.lists.filters import (
    BackendFilter,
    ChoiceFilter,
    ListFilter,
    SearchFilter,
    SinceFilter,
    SkillFilter,
    SpaceFilter,
    UntilFilter,
    WholeNumberFilter,
)
from console.web.lists.page import BulkAction, Column, Job, ListPage, Owner, maker, others

__all__ = [
    "BackendFilter",
    "BulkAction",
    "ChoiceFilter",
    "Column",
    "Job",
    "ListFilter",
    "ListPage",
    "Owner",
    "SearchFilter",
    "SinceFilter",
    "SkillFilter",
    "SpaceFilter",
    "UntilFilter",
    "WholeNumberFilter",
    "maker",
    "others",
]
