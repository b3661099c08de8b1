"""A client's metadata and ours in one bag: ours are stamped, hidden, and never the client's to set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandboxes.errors import InvalidRequest
from sandboxes.sessions import TAG_SESSION

__all__ = ["TAG_TEMPLATE", "checked", "is_generated", "visible", "wanted_session"]

TAG_TEMPLATE = "skillyard_template"
"""What the client knows the image as; the provider's own name for it may be a snapshot's id."""
WEKNORA_SESSION = "weknora_session_id"

_OURS = "skillyard_"
_GENERATED = re.compile(r"e2b_[0-9a-z]{26}", re.ASCII)


def is_generated(session_id: str) -> bool:
    """A session that has no name but the one we gave it."""
    return _GENERATED.fullmatch(session_id) is not None


def checked(metadata: Mapping[str, str]) -> dict[str, str]:
    """The client's pairs without the session. InvalidRequest for a key that is reserved."""
    for key in metadata:
        if key == "host-mount" or (key.startswith(_OURS) and key != TAG_SESSION):
            raise InvalidRequest(f"metadata: “{key}” is reserved; choose another key")
    if is_generated(metadata.get(TAG_SESSION, "")):
        raise InvalidRequest(f"metadata: “{TAG_SESSION}” looks like one of ours; choose another")
    return {key: value for key, value in metadata.items() if key != TAG_SESSION}


def wanted_session(metadata: Mapping[str, str]) -> tuple[str, bool]:
    """The session that the client names, empty for none, and whether it insists on it."""
    if explicit := metadata.get(TAG_SESSION, ""):
        return explicit, True
    return metadata.get(WEKNORA_SESSION, ""), False


def visible(metadata: Mapping[str, str]) -> dict[str, str]:
    """What a client sees: its own pairs, and the session if it was told that by itself."""
    found = {key: value for key, value in metadata.items() if not key.startswith(_OURS)}
    session = metadata.get(TAG_SESSION, "")
    if session and not is_generated(session) and session != metadata.get(WEKNORA_SESSION):
        found[TAG_SESSION] = session
    return found
