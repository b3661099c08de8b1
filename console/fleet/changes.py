"""What an edit of a backend would do, to be shown before it is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from console.fleet.accounts import Proof
from console.fleet.connection import Connection
from console.fleet.models import Backend, Session, SessionState
from console.tenants.models import Space
from skills.models import Release

__all__ = ["Change", "preview_change", "silent_releases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`silent` are releases that could no longer start there, `heard` those that could again; `sessions` counts
    the live sessions of spaces that would fall back to their base template, `spaces`. `proof` tells whether it
    is the same account all the same: then nothing falls silent."""

    identity: list[str]
    old_fingerprint: str
    new_fingerprint: str
    proof: Proof | None = None
    silent: list[Release] = field(default_factory=list)
    heard: list[Release] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    sessions: int = 0

    @property
    def moves_account(self) -> bool:
        proven = self.proof is not None and self.proof.same is True
        return self.old_fingerprint != self.new_fingerprint and not proven


def preview_change(backend: Backend, connection: Connection, proof: Proof | None = None) -> Change:
    """What saving this connection would do. Asks only the database."""
    old = Connection.of(backend)
    before, after = old.fingerprint, connection.fingerprint
    kept = Release.objects.kept().filter(backend=backend).select_related("space")
    silent = list(kept.filter(fingerprint=before))
    serving = [release.pk for release in silent]
    spaces = list(Space.objects.filter(backend=backend, current_release__in=serving))
    change = Change(
        identity=old.identity_changes(connection),
        old_fingerprint=before,
        new_fingerprint=after,
        proof=proof,
        silent=silent,
        heard=list(kept.filter(fingerprint=after)),
        spaces=spaces,
        sessions=Session.objects.filter(
            space__in=spaces, state__in=[SessionState.ACTIVE, SessionState.PAUSED]
        ).count(),
    )
    if change.moves_account:
        return change
    return Change(
        identity=change.identity, old_fingerprint=before, new_fingerprint=after, proof=proof
    )


def silent_releases(backend: Backend) -> list[Release]:
    """Releases that serve a space of this backend and can't start on it: to be rebuilt."""
    serving = Release.objects.filter(
        pk__in=Space.objects.filter(backend=backend).values("current_release")
    )
    return [row for row in serving.select_related("space") if not row.usable_on(backend)]
