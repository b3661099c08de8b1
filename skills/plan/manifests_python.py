"""What Python's manifests declare: requirements files, pyproject, Pipfile, setup.cfg, PEP 723 headers."""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from skills.package.secret_strings import mask_secrets
from skills.package.texts import spelled_out
from skills.plan.reading import Manifest, Reading, line_of
from skills.plan.types import StepKind

__all__ = [
    "read_pep723",
    "read_pipfile",
    "read_pyproject",
    "read_requirements",
    "read_setup_cfg",
]

_MAX_INCLUDES = 10
_MAX_LOCK_BYTES = 512 * 1024
_HASH = re.compile(r"\s--hash[= ]\S+")
_LOCAL = re.compile(r"(?:\.{0,2}/|~|file:|[A-Za-z]:\\)|[^@]*\.(?:whl|tar\.gz|zip)$")
_DEV_NAME = re.compile(r"dev|test|doc|lint", re.IGNORECASE)


def read_requirements(reading: Reading, path: str) -> Manifest:
    """A pip requirements file, with the files that it includes."""
    manifest = Manifest(path)
    pending, seen = [path], {path}
    suggested = bool(_DEV_NAME.search(posixpath.basename(path)))
    while pending:
        current = pending.pop(0)
        for number, line in _logical_lines(reading.text(current) or ""):
            if line.startswith("-"):
                include = _option(manifest, line, number)
                target = posixpath.normpath(posixpath.join(posixpath.dirname(current), include))
                if not include or target in seen or len(seen) >= _MAX_INCLUDES:
                    continue
                if reading.text(target) is None:
                    manifest.note("include_missing", f"“{include[:80]}” is not there.", number)
                    continue
                seen.add(target)
                pending.append(target)
            else:
                _requirement_line(manifest, line, number, suggested=suggested)
    return manifest


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continuations joined, numbered by where they begin."""
    start, joined = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        start = start if joined else number
        line = line if not line.lstrip().startswith("#") else ""
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        whole = re.split(r"\s#", joined + line, maxsplit=1)[0].strip()
        joined = ""
        if whole:
            yield start, whole


def _option(manifest: Manifest, line: str, number: int) -> str:
    """Notes an option line; returns the file that it includes, if it does."""
    name, _, value = line.replace("=", " ", 1).partition(" ")
    if name in ("-r", "--requirement"):
        return value.strip()
    shown = spelled_out(mask_secrets(line)[:120])
    if name in ("-e", "--editable"):
        manifest.note("editable_left_out", f"“{shown}” installs a folder: it is left out.", number)
    elif name in ("-c", "--constraint"):
        manifest.note("constraint_left_out", f"“{shown}”: constraints are not applied.", number)
    else:
        manifest.note(
            "option_left_out", f"“{shown}” is left out: the build decides where from.", number
        )
    return ""


def _requirement_line(manifest: Manifest, line: str, number: int, *, suggested: bool) -> None:
    if _HASH.search(line):
        line = _HASH.sub("", line).strip()
        if not any(note.code == "hashes_left_out" for note in manifest.notes):
            manifest.note("hashes_left_out", "Hashes are not checked by the plan.", number)
    line = re.split(r"\s--", line, maxsplit=1)[0].strip()
    if _LOCAL.match(line):
        shown = spelled_out(line[:120])
        manifest.note("local_left_out", f"“{shown}” is a local file: it is left out.", number)
        return
    manifest.add(StepKind.PIP, line, number, suggested=suggested)


def read_pyproject(reading: Reading, path: str) -> Manifest:
    """PEP 621 and Poetry dependencies, pinned where a lock lies beside them; extras as suggestions."""
    manifest = Manifest(path)
    text = reading.text(path) or ""
    data = _toml(manifest, text)
    pins = _lock_pins(reading, manifest, posixpath.dirname(path))
    project = _table(data, "project")
    for item in _strings(project.get("dependencies")):
        manifest.add(StepKind.PIP, _pinned(item, pins), _line(text, item))
    for group in _table(project, "optional-dependencies").values():
        for item in _strings(group):
            manifest.add(StepKind.PIP, item, _line(text, item), suggested=True)
    poetry = _table(_table(data, "tool"), "poetry")
    for name, constraint in _table(poetry, "dependencies").items():
        if name.lower() != "python":
            _add_poetry(manifest, name, constraint, text, pins)
    return manifest


def read_pipfile(reading: Reading, path: str) -> Manifest:
    manifest = Manifest(path)
    text = reading.text(path) or ""
    pins: dict[str, str] = {}
    lock = reading.text(path + ".lock")
    if lock and len(lock) <= _MAX_LOCK_BYTES:
        try:
            default = _table(json.loads(lock), "default")
        except (ValueError, RecursionError):
            default = {}
        for name, entry in default.items():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str) and version.startswith("=="):
                pins[canonicalize_name(name)] = version[2:]
    for name, constraint in _table(_toml(manifest, text), "packages").items():
        _add_poetry(manifest, name, constraint, text, pins)
    return manifest


def read_setup_cfg(reading: Reading, path: str) -> Manifest:
    manifest = Manifest(path)
    text = reading.text(path) or ""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
        listed = parser.get("options", "install_requires", fallback="")
    except configparser.Error:
        manifest.note("manifest_unreadable", "The file is no valid setup.cfg.")
        return manifest
    for item in listed.splitlines():
        if item.strip():
            manifest.add(StepKind.PIP, item.strip(), _line(text, item))
    return manifest


def read_pep723(path: str, text: str) -> Manifest | None:
    """The `# /// script` block of a script (PEP 723), or None when it has none."""
    if "# /// script" not in text:
        return None
    block: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not start:
            start = number if line.rstrip() == "# /// script" else 0
        elif line.rstrip() == "# ///":
            break
        elif line == "#" or line.startswith("# "):
            block.append(line[2:])
        else:
            return None
    else:
        return None
    manifest = Manifest(path)
    for item in _strings(_toml(manifest, "\n".join(block)).get("dependencies")):
        manifest.add(StepKind.PIP, item, start)
    return manifest


def _add_poetry(
    manifest: Manifest, name: str, constraint: object, text: str, pins: Mapping[str, str]
) -> None:
    extras, marker = "", ""
    if isinstance(constraint, dict):
        extras = ",".join(_strings(constraint.get("extras")))
        marker = str(constraint.get("markers") or "")
        if any(key in constraint for key in ("git", "path", "url", "file")):
            manifest.note("local_left_out", f"“{name[:80]}” is no release: it is left out.")
            return
        constraint = constraint.get("version", "*")
    if not isinstance(constraint, str):
        manifest.note("item_left_out", f"“{name[:80]}” has several versions: choose one by hand.")
        return
    item = f"{name}[{extras}]" if extras else name
    item += _pep440(constraint) + (f"; {marker}" if marker else "")
    manifest.add(StepKind.PIP, _pinned(item, pins), line_of(text, name))


def _pep440(constraint: str) -> str:
    """Poetry's `^` and bare versions in PEP 440; anything else is that already."""
    return ",".join(filter(None, (_one_pep440(part.strip()) for part in constraint.split(","))))


def _one_pep440(part: str) -> str:
    if part in ("", "*", "latest"):
        return ""
    version = part.lstrip("^~ ")
    numbers = version.split(".")
    if part.startswith("^") and all(number.isdecimal() for number in numbers):
        lead = next((at for at, number in enumerate(numbers) if int(number)), len(numbers) - 1)
        upper = [*numbers[:lead], str(int(numbers[lead]) + 1)]
        return f">={version},<{'.'.join(upper)}"
    if part.startswith("~") and not part.startswith("~="):
        return f"~={version}" if len(numbers) > 2 else f"=={version}.*"
    return f"=={part}" if part[0].isdigit() else part


def _lock_pins(reading: Reading, manifest: Manifest, folder: str) -> dict[str, str]:
    """Exact versions from uv.lock, poetry.lock, pdm.lock or pylock.toml beside the manifest."""
    for name in ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml"):
        text = reading.text(posixpath.join(folder, name))
        if text is None:
            continue
        if len(text) > _MAX_LOCK_BYTES:
            manifest.note("lock_not_read", f"{name} is too large to be read: nothing is pinned.")
            return {}
        data = _toml(manifest, text)
        versions: dict[str, set[str]] = {}
        packages = data.get("package") or data.get("packages")
        for package in packages if isinstance(packages, list) else []:
            if isinstance(package, dict) and isinstance(package.get("version"), str):
                found = canonicalize_name(str(package.get("name")))
                versions.setdefault(found, set()).add(package["version"])
        return {name: found.pop() for name, found in versions.items() if len(found) == 1}
    return {}


def _pinned(item: str, pins: Mapping[str, str]) -> str:
    try:
        requirement = Requirement(item)
    except InvalidRequirement:
        return item
    version = pins.get(canonicalize_name(requirement.name))
    if version is None or requirement.url:
        return item
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}=={version}{marker}"


def _toml(manifest: Manifest, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        reason = spelled_out(str(error))[:120]
        manifest.note("manifest_unreadable", f"The file is no valid TOML ({reason}): mend it.")
        return {}


def _table(data: object, name: str) -> dict[str, Any]:
    value = data.get(name) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _line(text: str, item: str) -> int:
    return line_of(text, re.split(r"[\s\[<>=!~;@(,]", item.strip(), maxsplit=1)[0])
