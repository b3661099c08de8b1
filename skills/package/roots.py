"""Where in a source the skill is: the folder that holds a SKILL.md."""

from __future__ import annotations

from collections.abc import Iterable

from skills.package.errors import PackageRefused, refuse
from skills.package.names import printable

__all__ = ["below", "choose_root", "find_roots", "skill_md_of"]

_MAX_DEPTH = 6
"""How deep clients of the specification look for skills."""
_IGNORED_PARTS = frozenset({"node_modules", ".venv", "venv"})


def find_roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Every folder with a SKILL.md, outermost first; the top is the empty string.

    A lower-case skill.md counts only at the top or in a single wrapping folder: searched for, it finds
    ordinary pages that happen to be called so.
    """
    paths = list(paths)
    roots = {
        path.rpartition("/")[0]
        for path in paths
        if path.rpartition("/")[2] == "SKILL.md"
        and path.count("/") <= _MAX_DEPTH
        and _IGNORED_PARTS.isdisjoint(path.split("/"))
    }
    if not roots:
        tops = {path.partition("/")[0] for path in paths}
        known = set(paths)
        wrapped = {f"{top}/skill.md" for top in tops} if len(tops) == 1 else set()
        roots = {path.rpartition("/")[0] for path in ({"skill.md"} | wrapped) & known}
    return tuple(sorted(roots, key=lambda root: (root.count("/") + bool(root), root)))


def choose_root(roots: tuple[str, ...], wanted: str | None, paths: Iterable[str]) -> str | None:
    """The root to take, or None where a person has to choose between several."""
    if not roots:
        raise _nothing_found(paths)
    if wanted is None:
        return roots[0] if len(roots) == 1 else None
    root = "/".join(part for part in wanted.split("/") if part not in ("", "."))
    if root in roots:
        return root
    places = ", ".join(f"“{known or '.'}”" for known in roots[:10])
    raise refuse(
        "root_unknown",
        f"There is no skill in “{printable(wanted)}”: choose one of {places}.",
        printable(wanted),
    )


def skill_md_of(root: str, paths: Iterable[str]) -> str:
    known = set(paths)
    return next(
        path for path in (below(root, "SKILL.md"), below(root, "skill.md")) if path in known
    )


def below(root: str, path: str) -> str:
    return f"{root}/{path}" if root else path


def _nothing_found(paths: Iterable[str]) -> PackageRefused:
    near = next((path for path in paths if path.lower().endswith("skill.md")), "")
    if near:
        shown = printable(near)
        return refuse(
            "skill_md_missing",
            f"The package has no SKILL.md, only “{shown}”: rename that to SKILL.md.",
            shown,
        )
    return refuse(
        "skill_md_missing",
        "The package has no SKILL.md: add one with name and description to the skill's folder.",
    )
