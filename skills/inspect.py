"""Reads and judges a package on disk: what `manage.py skill inspect` prints, as JSON-ready data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skills.package import LIMITS, Limits, Package, PackageRefused, read_package, refused_verdicts
from skills.plan import make_plan

__all__ = ["INSPECTION_VERSION", "describe", "inspect"]

INSPECTION_VERSION = 1
"""Of the dictionary's shape; raised when a key changes its meaning."""


def inspect(path: Path, *, root: str | None = None, limits: Limits = LIMITS) -> dict[str, Any]:
    """Verdicts, findings, digest and plan of a folder, an archive or a SKILL.md. Never raises for what
    the package holds: a refused one has `accepted` false and says why in `problems`.

    `candidates` lists the folders to choose `root` from when there are several skills.
    """
    try:
        with read_package(path, root=root, limits=limits) as package:
            return describe(package)
    except PackageRefused as refusal:
        return {
            "version": INSPECTION_VERSION,
            "accepted": False,
            "problems": [problem.to_json() for problem in refusal.problems],
            "candidates": refusal.to_json().get("candidates", []),
            "skill": None,
            "digest": None,
            "files": [],
            "notes": [],
            "findings": [],
            "verdicts": [verdict.to_json() for verdict in refused_verdicts(refusal.problems)],
            "plan": None,
        }


def describe(package: Package) -> dict[str, Any]:
    """The same of a package that was read already: an accepted one."""
    return {
        "version": INSPECTION_VERSION,
        "accepted": True,
        "problems": [],
        "candidates": [candidate.to_json() for candidate in package.candidates],
        "skill": {
            "root": package.root,
            "name": package.name,
            "description": package.description,
            "version": package.version,
            "frontmatter": dict(package.frontmatter),
            "size_bytes": package.size_bytes,
        },
        "digest": package.digest,
        "files": [file.to_json() for file in package.files],
        "notes": [note.to_json() for note in package.notes],
        "findings": [finding.to_json() for finding in package.findings],
        "verdicts": [verdict.to_json() for verdict in package.verdicts],
        "plan": make_plan(package).to_json(),
    }
