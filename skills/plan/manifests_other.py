"""What package.json, apt lists and Dockerfiles declare, and the manifests that plans don't cover."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from skills.package.install_commands import install_commands
from skills.plan.reading import Manifest, Reading, line_of
from skills.plan.types import StepKind

__all__ = ["UNKNOWN_MANIFESTS", "read_apt_list", "read_dockerfile", "read_package_json"]

_NOT_A_RELEASE = re.compile(
    r"(?:file|link|workspace|portal|patch|git|github|https?|npm|catalog)\b.*:|.*/"
)
_INSTALL_SCRIPTS = ("preinstall", "install", "postinstall", "prepare")

# By exact name or by ending: what it belongs to, and what to do instead.
UNKNOWN_MANIFESTS: Mapping[str, str] = {
    ".csproj": "a .NET project: a plan installs no .NET SDK",
    ".fsproj": "a .NET project: a plan installs no .NET SDK",
    ".sln": "a .NET solution: a plan installs no .NET SDK",
    "Gemfile": "a Ruby manifest: gems are not installed",
    "Gemfile.lock": "a Ruby lock: gems are not installed",
    ".gemspec": "a Ruby manifest: gems are not installed",
    "bun.lock": "a Bun lock: npm resolves versions anew from package.json",
    "bun.lockb": "a Bun lock: npm resolves versions anew from package.json",
    "pnpm-lock.yaml": "a pnpm lock: npm resolves versions anew from package.json",
    "yarn.lock": "a Yarn lock: npm resolves versions anew from package.json",
    "deno.json": "a Deno manifest: Deno is not installed",
    "deno.jsonc": "a Deno manifest: Deno is not installed",
    "Cargo.toml": "a Rust manifest: crates are not built",
    "Cargo.lock": "a Rust lock: crates are not built",
    "go.mod": "a Go manifest: modules are not built",
    "go.sum": "a Go lock: modules are not built",
    "environment.yml": "a conda environment: conda is not used",
    "environment.yaml": "a conda environment: conda is not used",
    "conda-lock.yml": "a conda lock: conda is not used",
    "pixi.toml": "a pixi environment: conda is not used",
    "setup.py": "a program that declares dependencies: it is not run",
    "composer.json": "a PHP manifest: its packages are not installed",
    "pom.xml": "a Maven project: it is not built",
    "build.gradle": "a Gradle project: it is not built",
    "build.gradle.kts": "a Gradle project: it is not built",
    "mix.exs": "an Elixir project: it is not built",
    "Package.swift": "a Swift package: it is not built",
    "pubspec.yaml": "a Dart manifest: its packages are not installed",
    "Project.toml": "a Julia manifest: its packages are not installed",
    "renv.lock": "an R lock: its packages are not installed",
    "cpanfile": "a Perl manifest: its modules are not installed",
    "Brewfile": "a Homebrew list: Homebrew is not used",
    "flake.nix": "a Nix flake: Nix is not used",
    "shell.nix": "a Nix shell: Nix is not used",
    "Dockerfile": "a Dockerfile: it is not built; its install commands are suggestions",
    "Containerfile": "a Containerfile: it is not built; its install commands are suggestions",
    "docker-compose.yml": "a Compose file: no services are started",
    "docker-compose.yaml": "a Compose file: no services are started",
    "compose.yaml": "a Compose file: no services are started",
    "devcontainer.json": "a dev container: it is not built",
    "CMakeLists.txt": "a CMake project: it is not built",
}


def read_package_json(reading: Reading, path: str) -> Manifest:
    """Dependencies of a package.json, pinned where npm's own lock lies beside it."""
    manifest = Manifest(path)
    text = reading.text(path) or ""
    data = _json(manifest, text)
    pins = _lock_pins(reading, posixpath.dirname(path))
    for field, suggested in (
        ("dependencies", False),
        ("optionalDependencies", False),
        ("peerDependencies", True),
        ("devDependencies", True),
    ):
        for name, version_range in _table(data, field).items():
            line = line_of(text, name)
            if not isinstance(version_range, str) or _NOT_A_RELEASE.match(version_range):
                sentence = f"“{name[:80]}” is no release of npm's registry: it is left out."
                manifest.note("local_left_out", sentence, line)
                continue
            wanted = pins.get(name, version_range.strip())
            item = name if wanted in ("", "*") else f"{name}@{wanted}"
            manifest.add(StepKind.NPM, item, line, suggested=suggested)
    for script in _INSTALL_SCRIPTS:
        if script in _table(data, "scripts"):
            sentence = f"Its “{script}” script is not run: add a command if the skill needs it."
            manifest.note("install_script_left_out", sentence, line_of(text, script))
    return manifest


def _lock_pins(reading: Reading, folder: str) -> dict[str, str]:
    for name in ("npm-shrinkwrap.json", "package-lock.json"):
        text = reading.text(posixpath.join(folder, name))
        if text is None:
            continue
        data = _json(Manifest(name), text)
        pins = {
            path.removeprefix("node_modules/"): str(entry["version"])
            for path, entry in _table(data, "packages").items()
            if path.startswith("node_modules/")
            and path.count("node_modules/") == 1
            and isinstance(entry, dict)
            and "version" in entry
        }
        older = _table(data, "dependencies")  # lock version 1
        pins.update(
            (name, str(entry["version"]))
            for name, entry in older.items()
            if name not in pins and isinstance(entry, dict) and "version" in entry
        )
        return {name: pin for name, pin in pins.items() if not _NOT_A_RELEASE.match(pin)}
    return {}


def read_apt_list(reading: Reading, path: str) -> Manifest:
    """Debian packages, separated by blanks or lines, `#` comments."""
    manifest = Manifest(path)
    for number, line in enumerate((reading.text(path) or "").split("\n"), start=1):
        for name in line.partition("#")[0].split():
            manifest.add(StepKind.APT, name.strip(",;"), number)
    return manifest


def read_dockerfile(reading: Reading, path: str) -> Manifest:
    manifest = Manifest(path)
    text = (reading.text(path) or "").replace("\\\n", "  ")
    for command in install_commands(text):
        if command.kind not in ("pip", "npm", "apt"):
            continue
        line = text.count("\n", 0, command.position) + 1
        for package in command.packages:
            manifest.add(StepKind(command.kind), package, line, suggested=True)
    return Manifest(path, suggested=manifest.suggested)


def _json(manifest: Manifest, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        manifest.note("manifest_unreadable", "The file is no valid JSON: mend it.", line)
        return {}
    return data if isinstance(data, dict) else {}


def _table(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}
