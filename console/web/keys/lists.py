"""The list of API keys, and revoking many of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from console.tenants.access import Action, Principal
from console.tenants.keys import revoke_key
from console.tenants.models import ApiKey
from console.web.lists import (
    BulkAction,
    ChoiceFilter,
    Column,
    Job,
    ListFilter,
    ListPage,
    Owner,
    SearchFilter,
    SpaceFilter,
    UntilFilter,
    maker,
    others,
)

__all__ = ["KEYS", "visible_keys"]


def visible_keys(principal: Principal) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(principal.reach(Action.MANAGE)).select_related(
        "tenant", "space", "created_by"
    )


class KeyFilter(ListFilter):
    q = SearchFilter(
        "name", "prefix", "created_by__username", label=gettext_lazy("Name, beginning or maker")
    )
    state = ChoiceFilter(
        choices=[
            ("valid", gettext_lazy("valid")),
            ("expired", gettext_lazy("expired")),
            ("revoked", gettext_lazy("revoked")),
            ("unused", gettext_lazy("valid, never used")),
        ],
        label=gettext_lazy("State"),
        any_label=gettext_lazy("Any state"),
        method="in_state",
    )
    space = SpaceFilter()
    used_before = UntilFilter(field_name="last_used_at", label=gettext_lazy("Last used until"))

    def in_state(self, rows: QuerySet[ApiKey], name: str, value: str) -> QuerySet[ApiKey]:
        now = timezone.now()
        expired = Q(revoked_at=None, expires_at__lte=now)
        valid = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
        return rows.filter(
            {
                "valid": valid,
                "expired": expired,
                "revoked": Q(revoked_at__isnull=False),
                "unused": valid & Q(last_used_at=None),
            }[value]
        )


async def _revoke(job: Job, row: ApiKey) -> str:
    if row.revoked_at is not None:
        return _("It was revoked before.")
    await sync_to_async(revoke_key)(principal=job.principal, key=row)
    return ""


def _if_revoked(rows: QuerySet[Any]) -> list[str]:
    valid = rows.filter(revoked_at=None)
    lately = valid.filter(last_used_at__gte=timezone.now() - timedelta(days=7))
    return [
        _(
            "Whatever uses one of them is refused from its next request on, for good. Used in the last seven "
            "days: %(count)d."
        )
        % {"count": lately.count()},
        *others(_("Revoked before: %(count)d."), rows.exclude(revoked_at=None).count()),
    ]


KEYS = ListPage(
    name="keys",
    title=gettext_lazy("API keys"),
    template="keys/list.html",
    rows=visible_keys,
    filters=KeyFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("name", gettext_lazy("Name"), sort="name"),
        Column("prefix", gettext_lazy("Begins with"), sort="prefix"),
        Column(
            "space",
            gettext_lazy("For"),
            lambda row: row.space.slug if row.space else "",
            sort="space__name",
            nullable=True,
        ),
        Column("tenant", value=lambda row: row.tenant.slug),
        Column("scopes", gettext_lazy("May")),
        Column("created_by", value=maker),
        Column("created_at", gettext_lazy("Made"), sort="pk", falling=True),
        Column(
            "last_used_at", gettext_lazy("Used"), sort="last_used_at", falling=True, nullable=True
        ),
        Column("expires_at", gettext_lazy("Expires"), sort="expires_at", nullable=True),
        Column("revoked_at"),
    ),
    sort="-created_at",
    actions=(
        BulkAction(
            name="key.revoke",
            label=gettext_lazy("Revoke"),
            right=Action.MANAGE,
            apply=_revoke,
            question=ngettext_lazy("Revoke %(count)d key?", "Revoke %(count)d keys?", "count"),
            consequences=_if_revoked,
            irreversible=True,
        ),
    ),
    owner=lambda row: Owner(tenant_id=row.tenant_id, space_id=row.space_id),
)
