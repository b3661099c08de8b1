"""What a fresh installation still lacks, in the order in which it is done."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _

from console.tenants.access import Action, Principal
from console.tenants.models import User
from console.web.overview.dashboard import Dashboard

__all__ = ["Step", "first_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    label: str
    hint: str
    url: str
    is_done: bool


def first_steps(
    principal: Principal, user: User, found: Dashboard, *, has_sessions: bool
) -> list[Step]:
    """Empty once all are done, or closed, and for who could not do them."""
    may = any(
        principal.may(Action.MANAGE, tenant_id=tenant.pk)
        and principal.may(Action.CATALOG, tenant_id=tenant.pk)
        for tenant in found.tenants
    )
    if user.hides_first_steps or not may:
        return []
    steps = _steps(found, has_sessions)
    return [] if all(step.is_done for step in steps) else steps


def _steps(found: Dashboard, has_sessions: bool) -> list[Step]:
    backends = found.whole_backends
    to_verify = next((s for s in backends if s.verified != "ok"), None) or next(
        iter(backends), None
    )
    only = found.spaces[0].space if len(found.spaces) == 1 else None
    return [
        Step(
            label=_("Verify the backend"),
            hint=_(
                "Eight points show that sandboxes start, keep their files and hold their network."
            ),
            url=reverse("web:backend", args=[to_verify.backend.pk])
            if to_verify
            else reverse("web:new-backend"),
            is_done=any(s.verified in ("ok", "stale") for s in backends),
        ),
        Step(
            label=_("Upload a skill"),
            hint=_("It is read and judged without running anything."),
            url=reverse("web:upload"),
            is_done=found.skills > 0,
        ),
        Step(
            label=_("Install it in a space"),
            hint=_("A build installs it, verifies it, and freezes the result as a release."),
            url=reverse("web:space-skills", args=[only.pk]) if only else reverse("web:spaces"),
            is_done=any(standing.space.current_release_id for standing in found.spaces),
        ),
        Step(
            label=_("Start a session"),
            hint=_("By hand from a space, or by the platform through the API."),
            url=reverse("web:space", args=[only.pk]) if only else reverse("web:spaces"),
            is_done=has_sessions,
        ),
    ]
