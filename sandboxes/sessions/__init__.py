"""Sessions that survive: one conversation, one sandbox, whatever fails in between.

Start with `SessionManager`. Redis holds the truth (binding, lock, turn); the sandbox's own tags bring
a lost binding back. `reap` finds the sandboxes that no session has.
"""

from sandboxes.sessions.binding import Binding, BindingDamaged, Cipher, Stale, StoredBinding
from sandboxes.sessions.events import EventKind, OnEvent, SessionEvent, Why
from sandboxes.sessions.introduce import SessionTaken
from sandboxes.sessions.keys import (
    SCHEMA_VERSION,
    TAG_BACKEND,
    TAG_BUILD,
    TAG_POLICY,
    TAG_RELEASE,
    TAG_SCHEMA,
    TAG_SESSION,
    TAG_SPACE,
    TAG_TENANT,
    SessionKey,
    ownership_tags,
)
from sandboxes.sessions.lease import TurnState
from sandboxes.sessions.lock import Held, LockLost, LockTiming, SessionBusy, Snapshot
from sandboxes.sessions.manager import SessionManager
from sandboxes.sessions.operation import SessionDeleted
from sandboxes.sessions.plan import ReleaseImage, SandboxPlan
from sandboxes.sessions.reaper import Finding, FindingKind, Inspect, ReapReport, reap
from sandboxes.sessions.resolve import Outcome, Prepare, Resolved
from sandboxes.sessions.rollout import MarkFailure, Rollout, StaleReport

__all__ = [
    "SCHEMA_VERSION",
    "TAG_BACKEND",
    "TAG_BUILD",
    "TAG_POLICY",
    "TAG_RELEASE",
    "TAG_SCHEMA",
    "TAG_SESSION",
    "TAG_SPACE",
    "TAG_TENANT",
    "Binding",
    "BindingDamaged",
    "Cipher",
    "EventKind",
    "Finding",
    "FindingKind",
    "Held",
    "Inspect",
    "LockLost",
    "LockTiming",
    "MarkFailure",
    "OnEvent",
    "Outcome",
    "Prepare",
    "ReapReport",
    "ReleaseImage",
    "Resolved",
    "Rollout",
    "SandboxPlan",
    "SessionBusy",
    "SessionDeleted",
    "SessionEvent",
    "SessionKey",
    "SessionManager",
    "SessionTaken",
    "Snapshot",
    "Stale",
    "StaleReport",
    "StoredBinding",
    "TurnState",
    "Why",
    "ownership_tags",
    "reap",
]
