"""Finds every manifest, three folders deep, and turns what it declares into steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from skills.plan.manifests_other import (
    UNKNOWN_MANIFESTS,
    read_apt_list,
    read_dockerfile,
    read_package_json,
)
from skills.plan.manifests_python import (
    read_pep723,
    read_pipfile,
    read_pyproject,
    read_requirements,
    read_setup_cfg,
)
from skills.plan.reading import Manifest, Reading, is_side_folder
from skills.plan.types import PlanNote, Step, StepKind, UnknownManifest

__all__ = ["ManifestSteps", "read_manifests"]

MAX_DEPTH = 3
_REQUIREMENTS = re.compile(
    r"(?:[\w-]+[-_.])?requirements?(?:[-_.][\w-]+)*\.(?:txt|in)", re.IGNORECASE
)
_APT_LISTS = frozenset(
    {"apt.txt", "packages.txt", "apt-packages.txt", "apt_packages.txt", "apt-requirements.txt",
     "system-packages.txt", "Aptfile", "apt.list"}
)  # fmt: skip
_READERS: dict[str, Callable[[Reading, str], Manifest]] = {
    "pyproject.toml": read_pyproject,
    "Pipfile": read_pipfile,
    "setup.cfg": read_setup_cfg,
    "package.json": read_package_json,
    "Dockerfile": read_dockerfile,
    "Containerfile": read_dockerfile,
    **dict.fromkeys(_APT_LISTS, read_apt_list),
}
_IGNORED_PARTS = frozenset({"node_modules", ".venv", "venv", "site-packages"})


@dataclass
class ManifestSteps:
    steps: list[Step] = field(default_factory=list)
    unknown: list[UnknownManifest] = field(default_factory=list)
    notes: list[PlanNote] = field(default_factory=list)

    def declares(self, kind: StepKind) -> bool:
        return any(step.kind is kind and step.enabled for step in self.steps)


def read_manifests(reading: Reading) -> ManifestSteps:
    found = ManifestSteps()
    # The outermost first: where two manifests say the same, its line is the one that is shown.
    for path in sorted(reading.sizes, key=lambda path: (path.count("/"), path)):
        if _IGNORED_PARTS.isdisjoint(path.split("/")):
            _read_one(reading, path, found)
    return found


def _read_one(reading: Reading, path: str, found: ManifestSteps) -> None:
    name = path.rpartition("/")[2]
    if sentence := _unknown(name):
        found.unknown.append(UnknownManifest(path, f"{path} is {sentence}."))
    reader = _READERS.get(name)
    if reader is None and _is_requirements(reading, path, name):
        reader = read_requirements
    if reader is not None and path.count("/") > MAX_DEPTH:
        sentence = f"It lies deeper than {MAX_DEPTH} folders: it is not read."
        found.notes.append(PlanNote("manifest_too_deep", sentence, f"{path}:1"))
    elif reader is not None:
        _take(reader(reading, path), found, "It is declared in")
    elif name.endswith(".py") and (manifest := read_pep723(path, reading.text(path) or "")):
        _take(manifest, found, "It is declared in the script header (PEP 723) of")


def _is_requirements(reading: Reading, path: str, name: str) -> bool:
    if path.rpartition("/")[0].rpartition("/")[2] == "requirements" and name.endswith(".txt"):
        return True
    if not _REQUIREMENTS.fullmatch(name):
        return False
    # An .in file is what its .txt was compiled from.
    return not (name.endswith(".in") and path.removesuffix(".in") + ".txt" in reading.sizes)


def _unknown(name: str) -> str:
    if name in UNKNOWN_MANIFESTS:
        return UNKNOWN_MANIFESTS[name]
    ending = "." + name.rpartition(".")[2]
    return UNKNOWN_MANIFESTS.get(ending, "") if "." in name else ""


def _take(manifest: Manifest, found: ManifestSteps, reason: str) -> None:
    found.notes.extend(manifest.notes)
    aside = is_side_folder(manifest.path)
    for listed, enabled in ((manifest.declared, not aside), (manifest.suggested, False)):
        for kind in (StepKind.APT, StepKind.PIP, StepKind.NPM):
            declared = [entry for entry in listed if entry.kind is kind]
            if not declared:
                continue
            why = f"{reason} {manifest.path}."
            if aside:
                why = f"{reason} {manifest.path}, which is no part of the skill's own work."
            elif not enabled:
                why = f"It is optional in {manifest.path}."
            source = f"{manifest.path}:{declared[0].line}"
            items = tuple(dict.fromkeys(entry.item for entry in declared))
            found.steps.append(Step(kind, items, source, why, enabled))
