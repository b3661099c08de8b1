"""Why something happened to a session's sandbox: codes in the rows, sentences on the pages."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

__all__ = [
    "ASKED",
    "GONE",
    "GONE_IDLE",
    "IDLE",
    "REQUESTED",
    "ROW_BEHIND",
    "WOKEN",
    "kind",
    "sentence",
]

REQUESTED = "requested"
ASKED = "asked"
IDLE = "idle"
WOKEN = "woken"
GONE = "gone"
GONE_IDLE = "gone_idle"
ROW_BEHIND = "row_behind"

_KINDS = {
    "created": gettext_lazy("created"),
    "claimed": gettext_lazy("taken back"),
    "rebuilt": gettext_lazy("rebuilt"),
    "resumed": gettext_lazy("resumed"),
    "paused": gettext_lazy("paused"),
    "unbound": gettext_lazy("unbound"),
    "lost": gettext_lazy("lost"),
    "destroyed": gettext_lazy("destroyed"),
    "seen": gettext_lazy("seen"),
}

_SENTENCES = {
    "new": gettext_lazy("The session's first sandbox."),
    "stale": gettext_lazy("To bring it to the space's present release and policy."),
    ASKED: gettext_lazy("A rebuild was asked for by hand."),
    GONE: gettext_lazy("Its sandbox was gone from the backend."),
    GONE_IDLE: gettext_lazy("It was stopped when idle, because this backend can't pause."),
    "paused": gettext_lazy("A call woke it."),
    "backend_changed": gettext_lazy("The space moved to another backend."),
    "account_left": gettext_lazy("Its backend left the account that it lived in."),
    "binding_lost": gettext_lazy("Its binding was lost, and the sandbox found by its tags."),
    "token_lost": gettext_lazy("Its traffic token was lost, so it could not be reached."),
    "duplicate": gettext_lazy("The session has another sandbox."),
    "lost_race": gettext_lazy("Another call was faster."),
    "session_deleted": gettext_lazy("The session was deleted."),
    REQUESTED: gettext_lazy("As asked."),
    "unusable": gettext_lazy("It could not be made ready."),
    IDLE: gettext_lazy("It was idle for longer than the space's idle time."),
    WOKEN: gettext_lazy("Something woke it."),
    ROW_BEHIND: gettext_lazy("The record had missed it; corrected by the reconciler."),
}


def kind(code: str) -> str:
    """What happened, in the reader's language; an unknown code as it is."""
    return str(_KINDS.get(code, code))


def sentence(reason: str) -> str:
    """Why, in the reader's language; what is no code of ours is a sentence already."""
    return str(_SENTENCES.get(reason, _(reason) if reason else ""))
