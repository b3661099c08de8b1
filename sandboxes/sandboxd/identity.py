"""Who a data directory is: what the host knows of its sandboxes (control groups, networks, firewall tables,
containers) is named after it, so a daemon finds it again under whatever path it is given the directory.

A moved directory, or one reached through a link, is the same; a copy is another, and gets another name.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path

__all__ = ["identity", "key"]

_FILE = "identity.json"
_IN_USE = "engine.lock"
_RUN_DIR = Path("/run/skillyard")
_KEY_CHARS = 8


def key(data_dir: Path) -> str:
    """The part that names are made of."""
    return identity(data_dir)[:_KEY_CHARS]


def identity(data_dir: Path) -> str:
    """Hex digits, made with the directory, which is made if it is missing."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    inode = data_dir.stat().st_ino
    path = data_dir / _FILE
    try:
        stored = json.loads(path.read_text())
        if stored["inode"] == inode:
            return str(stored["id"])
        made = uuid.uuid4().hex
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        made = _first(data_dir)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"id": made, "inode": inode}))
    draft.replace(path)
    return made


def _first(data_dir: Path) -> str:
    """Named after its path, as directories were before they had a name of their own; unless another one has
    that name still, which was moved away from here."""
    named = hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:_KEY_CHARS]
    taken = (_RUN_DIR / f"network-{named}").exists() and not (data_dir / _IN_USE).exists()
    rest = uuid.uuid4().hex
    return rest if taken else named + rest[_KEY_CHARS:]
