"""What package managers say they installed, as name and version. Pure."""

from __future__ import annotations

import json
import re

__all__ = ["normalised", "parse_apt", "parse_npm", "parse_pip"]


def normalised(name: str) -> str:
    """A Python distribution's name in PEP 503 form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pip(text: str) -> dict[str, str]:
    """From a JSON object of name to version; an empty text is an empty environment."""
    found = json.loads(text) if text.strip() else {}
    return dict(sorted((normalised(name), version) for name, version in found.items()))


def parse_npm(text: str) -> dict[str, str]:
    """From node_modules/.package-lock.json (npm 7 and later). A name that is there in several versions has
    all of them, joined by commas."""
    if not text.strip():
        return {}
    found: dict[str, set[str]] = {}
    for path, entry in json.loads(text).get("packages", {}).items():
        name = entry.get("name") or path.rpartition("node_modules/")[2]
        if name and entry.get("version"):
            found.setdefault(name, set()).add(entry["version"])
    return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}


def parse_apt(text: str) -> dict[str, str]:
    """From lines of package, version and status, separated by tabs."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, version, status = [*line.split("\t"), "", ""][:3]
        if name and status == "installed":
            found[name] = version
    return dict(sorted(found.items()))
