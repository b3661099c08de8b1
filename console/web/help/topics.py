"""Which part of the handbook tells of which page: the one place that says so."""

from __future__ import annotations

__all__ = ["TOPICS", "topic_of"]

TOPICS = {
    "overview": "admin#the-overview",
    "profile": "admin#your-own-settings",
    "password": "admin#your-own-settings",
    "two-step": "admin#your-own-settings",
    "sign-ins": "admin#your-own-settings",
    "member-security": "admin#how-members-sign-in",
    "spaces": "admin#spaces",
    "new-space": "admin#spaces",
    "space-settings": "space-owner#settings",
    "delete-space": "admin#deleting-a-space",
    "space": "admin#the-overview",
    "space-skills": "admin#from-a-package-to-a-release",
    "network": "space-owner#the-network-policy",
    "network-import": "space-owner#export-and-import",
    "network-test": "space-owner#test-a-host",
    "catalog": "admin#from-a-package-to-a-release",
    "upload": "admin#from-a-package-to-a-release",
    "skill": "admin#from-a-package-to-a-release",
    "version": "admin#from-a-package-to-a-release",
    "plans": "admin#the-plan",
    "edit-plan": "admin#the-plan",
    "builds": "operator#builds",
    "space-builds": "operator#builds",
    "build": "operator#builds",
    "releases": "admin#releases",
    "space-releases": "admin#releases",
    "release": "admin#releases",
    "compare-releases": "admin#releases",
    "sessions": "space-owner#sessions",
    "space-sessions": "space-owner#sessions",
    "session": "admin#one-session",
    "show-file": "admin#one-session",
    "rename-file": "admin#one-session",
    "remove-file": "admin#one-session",
    "bulk-run": "admin#lists",
    "backends": "backends#what-each-can-do",
    "backend": "backends#what-each-can-do",
    "new-backend": "backends#settings",
    "edit-backend": "backends#changing-a-backend",
    "confirm-backend": "backends#changing-a-backend",
    "backend-images": "backends#templates",
    "verification": "backends#verification",
    "reconcile": "operator#sandboxes-that-nobody-needs",
    "reconcile-report": "operator#sandboxes-that-nobody-needs",
    "members": "admin#members-and-keys",
    "keys": "admin#members-and-keys",
    "audit": "admin#the-audit-log",
}
"""By route: a document of `docs/` and the section of it. A route without one has that of its area's
list, which is called like the area."""


def topic_of(route: str, area: str) -> tuple[str, str] | None:
    """The document and the anchor, or None for a page without help of its own."""
    topic = TOPICS.get(route) or TOPICS.get(area)
    if topic is None:
        return None
    name, _hash, anchor = topic.partition("#")
    return name, anchor
