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

__all__ = ["PLATFORM", "SCOPES", "Action", "Grant", "Principal"]


class Action(enum.StrEnum):
    VIEW = "view"
    """See spaces, skills, releases, builds, sessions and policies."""
    RUN = "run"
    """Use sessions: start, run commands, read and write files, and end them.

    Ending needs no right of its own: whoever runs commands in a space's sessions can delete all that is in
    them anyway, and a platform has to end a session when its conversation is deleted, with whichever of
    its keys it holds by then. So the right goes by the space, not by who made the session.
    """
    OPERATE = "operate"
    """Act on what others use: pause sessions, reconcile, cancel builds, run commands as another account."""
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

PLATFORM = "platform"
"""The scope of a key that is the platform's admin: everything, in every tenant. No role holds it."""

SCOPES: tuple[str, ...] = (*Action, PLATFORM)
"""What an API key may be granted: the same words, and `platform`."""


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
    owes_two_step: bool = False
    """A tenant of theirs wants two-step sign-in and they have none: nothing is allowed until they do."""

    @classmethod
    def of_user(cls, user: User, *, address: str | None = None, request_id: str = "") -> Principal:
        actor = Actor(
            name=user.get_username(), user_id=user.pk, address=address, request_id=request_id
        )
        memberships = Membership.objects.filter(user=user).select_related("tenant")
        if any(row.tenant.two_step_required for row in memberships) and not user.has_two_step():
            return cls(actor=actor, grants=(), owes_two_step=True)
        grants = tuple(
            Grant(
                tenant_id=membership.tenant_id,
                space_id=membership.space_id,
                actions=ROLE_ACTIONS[membership.role],
            )
            for membership in memberships
        )
        return cls(actor=actor, grants=grants, everything=user.is_superuser)

    @classmethod
    def of_key(cls, key: ApiKey, *, address: str | None = None, request_id: str = "") -> Principal:
        """A key never has more than its scopes, in its one tenant or space; with the scope `platform` it is
        the platform's admin."""
        grant = Grant(
            tenant_id=key.tenant_id,
            space_id=key.space_id,
            actions=frozenset(Action(scope) for scope in key.scopes if scope in tuple(Action)),
        )
        actor = Actor(name=f"key {key.prefix}", address=address, request_id=request_id)
        everything = PLATFORM in key.scopes and key.space_id is None
        return cls(actor=actor, grants=(grant,), everything=everything)

    def may(self, action: Action, *, tenant_id: str, space_id: str | None = None) -> bool:
        return self.everything or any(
            grant.covers(action, tenant_id=tenant_id, space_id=space_id) for grant in self.grants
        )

    def may_somewhere(self, action: Action) -> bool:
        """Whether it is worth offering at all; asks nothing of the database."""
        return self.everything or any(action in grant.actions for grant in self.grants)

    def require_platform(self) -> None:
        """PermissionDenied, with the mend, unless this is the platform's admin."""
        if not self.everything:
            raise PermissionDenied(
                _("Only the platform's admin may do this; ask them, or use a key with “platform”.")
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

    def reach(self, action: Action) -> Q:
        """Of rows that have a `tenant` and perhaps a `space`: those where this is allowed. By ids alone, so
        that a database finds them in an index, in order."""
        if self.everything:
            return Q()
        wanted = [grant for grant in self.grants if action in grant.actions]
        return Q(tenant__in={grant.tenant_id for grant in wanted if grant.space_id is None}) | Q(
            space__in={grant.space_id for grant in wanted if grant.space_id}
        )

    def member_of(self) -> QuerySet[Tenant]:
        """The tenants in which they have any role, in one space at least: they see its catalog."""
        if self.everything:
            return Tenant.objects.all()
        return Tenant.objects.filter(pk__in={grant.tenant_id for grant in self.grants})

    def space(self, space_id: str, action: Action) -> Space:
        """The space, if it may be acted on. Http404 if it is not visible, else PermissionDenied; Conflict
        for anything but a look at one that is being deleted."""
        space = (
            self.spaces()
            .select_related("tenant", "backend", "current_release", "candidate_release")
            .filter(pk=space_id)
        ).first()
        if space is None:
            raise Http404
        self.require(action, tenant_id=space.tenant_id, space_id=space.pk)
        if action is not Action.VIEW:
            space.require_kept()
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
