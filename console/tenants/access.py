"""Who may do what: the one place that decides.

A `Principal` is whoever acts, a person or an API key, with the grants they hold. Views ask
`principal.space(...)` or `principal.tenant(...)`, which answer 404 for what is not theirs to see
and 403 for what they see but may not do. Nothing is allowed that is not in the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404
from django.utils.translation import gettext as _

from console.audit.services import Actor
from console.tenants.models import ApiKey, Membership, Role, Space, Tenant, User

__all__ = ["Action", "Grant", "Principal"]


class Action(enum.StrEnum):
    VIEW = "view"
    """See spaces, skills, releases, builds, sessions and policies."""
    RUN = "run"
    """Use sessions: start, run commands, read and write files."""
    OPERATE = "operate"
    """Pause, destroy and reconcile; cancel and retry builds."""
    BUILD = "build"
    """Change a space's skills, build, roll back."""
    POLICY = "policy"
    """Edit a space's network policy."""
    CATALOG = "catalog"
    """Upload skills to the tenant and edit their plans."""
    MANAGE = "manage"
    """Backends, members, keys and settings."""
    AUDIT = "audit"
    """Read the audit log."""


ROLE_ACTIONS: dict[str, frozenset[Action]] = {
    Role.ADMIN: frozenset(Action),
    Role.OWNER: frozenset(
        {Action.VIEW, Action.RUN, Action.OPERATE, Action.BUILD, Action.POLICY, Action.CATALOG}
    ),
    Role.OPERATOR: frozenset({Action.VIEW, Action.RUN, Action.OPERATE}),
    Role.VIEWER: frozenset({Action.VIEW}),
    Role.AUDITOR: frozenset({Action.VIEW, Action.AUDIT}),
}

SCOPES: tuple[str, ...] = tuple(Action)
"""What an API key may be granted: the same words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """`space_id` None means the whole tenant."""

    tenant_id: str
    space_id: str | None
    actions: frozenset[Action]

    def covers(self, action: Action, *, tenant_id: str, space_id: str | None) -> bool:
        return (
            action in self.actions
            and self.tenant_id == tenant_id
            and self.space_id in (None, space_id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    actor: Actor
    grants: tuple[Grant, ...]
    everything: bool = False
    """The platform's admin."""

    @classmethod
    def of_user(cls, user: User, *, address: str | None = None, request_id: str = "") -> Principal:
        grants = tuple(
            Grant(
                tenant_id=membership.tenant_id,
                space_id=membership.space_id,
                actions=ROLE_ACTIONS[membership.role],
            )
            for membership in Membership.objects.filter(user=user)
        )
        actor = Actor(
            name=user.get_username(), user_id=user.pk, address=address, request_id=request_id
        )
        return cls(actor=actor, grants=grants, everything=user.is_superuser)

    @classmethod
    def of_key(cls, key: ApiKey, *, address: str | None = None, request_id: str = "") -> Principal:
        """A key never has more than its scopes, in its one tenant or space."""
        grant = Grant(
            tenant_id=key.tenant_id,
            space_id=key.space_id,
            actions=frozenset(Action(scope) for scope in key.scopes if scope in SCOPES),
        )
        actor = Actor(name=f"key {key.prefix}", address=address, request_id=request_id)
        return cls(actor=actor, grants=(grant,))

    def may(self, action: Action, *, tenant_id: str, space_id: str | None = None) -> bool:
        return self.everything or any(
            grant.covers(action, tenant_id=tenant_id, space_id=space_id) for grant in self.grants
        )

    def spaces(self, action: Action = Action.VIEW) -> QuerySet[Space]:
        """The spaces in which this is allowed."""
        if self.everything:
            return Space.objects.all()
        wanted = [grant for grant in self.grants if action in grant.actions]
        return Space.objects.filter(
            Q(pk__in=[grant.space_id for grant in wanted if grant.space_id])
            | Q(tenant__in=[grant.tenant_id for grant in wanted if grant.space_id is None])
        )

    def tenants(self, action: Action = Action.VIEW) -> QuerySet[Tenant]:
        """The tenants in all of which this is allowed, for the tenant's own things."""
        if self.everything:
            return Tenant.objects.all()
        whole = {
            grant.tenant_id
            for grant in self.grants
            if grant.space_id is None and action in grant.actions
        }
        return Tenant.objects.filter(pk__in=whole)

    def member_of(self) -> QuerySet[Tenant]:
        """The tenants in which they have any role, in one space at least: they see its catalog."""
        if self.everything:
            return Tenant.objects.all()
        return Tenant.objects.filter(pk__in={grant.tenant_id for grant in self.grants})

    def space(self, space_id: str, action: Action) -> Space:
        """The space, if it may be acted on. Http404 if it is not visible, else PermissionDenied."""
        space = (
            self.spaces()
            .select_related("tenant", "backend", "current_release", "candidate_release")
            .filter(pk=space_id)
        ).first()
        if space is None:
            raise Http404
        self.require(action, tenant_id=space.tenant_id, space_id=space.pk)
        return space

    def tenant(self, tenant_id: str, action: Action) -> Tenant:
        """As `space`, for a tenant."""
        visible = {grant.tenant_id for grant in self.grants}
        tenant = Tenant.objects.filter(pk=tenant_id).first()
        if tenant is None or not (self.everything or tenant_id in visible):
            raise Http404
        self.require(action, tenant_id=tenant.pk)
        return tenant

    def require(self, action: Action, *, tenant_id: str, space_id: str | None = None) -> None:
        """PermissionDenied, with the mend, unless it is allowed."""
        if not self.may(action, tenant_id=tenant_id, space_id=space_id):
            raise PermissionDenied(
                _("You may not do this here (it needs the right “%(action)s”). Ask a tenant admin.")
                % {"action": action.value}
            )
