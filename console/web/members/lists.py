"""The list of who has a role where."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from console.tenants.access import Action
from console.tenants.models import Membership, Role
from console.web.lists import ChoiceFilter, Column, ListFilter, ListPage, SearchFilter, SpaceFilter

__all__ = ["MEMBERS"]


class MemberFilter(ListFilter):
    at_hand = ("q", "role", "space")

    q = SearchFilter("user__username", label=_("User name"))
    role = ChoiceFilter(choices=Role.choices, label=_("Role"), any_label=_("Any role"))
    space = SpaceFilter()


MEMBERS = ListPage(
    name="members",
    title=_("Members"),
    template="members/list.html",
    rows=lambda principal: Membership.objects.filter(
        tenant__in=principal.tenants(Action.MANAGE)
    ).select_related("user", "tenant", "space"),
    filters=MemberFilter,
    columns=(
        Column("username", _("Person"), lambda row: row.user.get_username(), sort="user__username"),
        Column("tenant", value=lambda row: row.tenant.slug),
        Column(
            "space",
            _("Where"),
            lambda row: row.space.slug if row.space else "",
            sort="space__name",
            nullable=True,
        ),
        Column("role", _("Role"), sort="role"),
        Column("created_at"),
        Column(
            "last_sign_in_at",
            _("Last signed in"),
            lambda row: row.user.last_login,
            sort="user__last_login",
            falling=True,
            nullable=True,
        ),
    ),
    sort="username",
)
