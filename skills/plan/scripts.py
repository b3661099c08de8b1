"""Turns what scripts import and start into steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from skills.package.texts import interpreter_of, spelled_out
from skills.plan.knowledge import (
    APT_OF_DISTRIBUTION,
    APT_OF_PROGRAM,
    BASE_PROGRAMS,
    DISTRIBUTION_OF_MODULE,
    NODE_BUILTINS,
    NPM_OF_PROGRAM,
    WELL_KNOWN,
)
from skills.plan.programs import (
    Use,
    node_imports,
    node_programs,
    python_code,
    python_imports,
    python_programs,
    shell_programs,
)
from skills.plan.reading import Reading, is_side_folder
from skills.plan.types import Step, StepKind
from skills.plan.validate import broken_item_rule

__all__ = ["distribution_steps", "script_steps"]

_NODE = frozenset({"node", "tsx", "bun", "deno"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_NEVER_PACKAGES = frozenset({"__future__", "__main__", "_typeshed", "google", "pip", "distutils"})


@dataclass(frozen=True, slots=True)
class _Declares:
    """Which kinds a manifest speaks for already: there, what is found is only suggested."""

    pip: bool
    npm: bool
    apt: bool


def script_steps(reading: Reading, *, pip: bool, npm: bool, apt: bool) -> Iterator[Step]:
    """Steps for every script. `pip`, `npm`, `apt` tell what manifests declare already."""
    declares = _Declares(pip, npm, apt)
    local = _local_modules(reading)
    for path in reading.sizes:
        text = reading.text(path)
        if text is None:
            continue
        interpreter = interpreter_of(path, text)
        if not interpreter:
            continue
        aside = is_side_folder(path)
        yield from _programs(path, [Use(interpreter, 1)], declares, aside=aside)
        if interpreter.startswith("python") or interpreter in ("uv", "pypy3"):
            yield from _python(path, text, local, declares, aside=aside)
        elif interpreter in _NODE:
            yield from _node(path, text, declares, aside=aside)
        elif interpreter in _SHELLS:
            yield from _programs(path, shell_programs(text), declares, aside=aside)


def _local_modules(reading: Reading) -> frozenset[str]:
    """Every name that an import inside of the package may mean."""
    names: set[str] = set()
    for path in reading.sizes:
        if path.endswith((".py", ".pyi", ".so")):
            *folders, name = path.split("/")
            names.update(folders)
            names.add(name.partition(".")[0])
    return frozenset(names)


def _python(
    path: str, text: str, local: frozenset[str], declares: _Declares, *, aside: bool
) -> Iterator[Step]:
    code = python_code(text)
    for use in python_imports(code):
        module = use.name
        if module in sys.stdlib_module_names or module in local or module in _NEVER_PACKAGES:
            continue
        known = DISTRIBUTION_OF_MODULE.get(module)
        item = known or module.replace("_", "-")
        if broken_item_rule(StepKind.PIP, item):
            continue
        sure = known is not None or canonicalize_name(item) in WELL_KNOWN
        reason = f"{path} imports {module}"
        reason += f", which {item} provides." if sure else f"; that {item} provides it is a guess."
        enabled = sure and not declares.pip and not aside
        yield Step(StepKind.PIP, (item,), f"{path}:{use.line}", reason, enabled)
    yield from _programs(path, python_programs(code), declares, aside=aside)


def _node(path: str, text: str, declares: _Declares, *, aside: bool) -> Iterator[Step]:
    for use in node_imports(text):
        if use.name.partition("/")[0] in NODE_BUILTINS or broken_item_rule(StepKind.NPM, use.name):
            continue
        reason = f"{path} imports {use.name}."
        enabled = not declares.npm and not aside
        yield Step(StepKind.NPM, (use.name,), f"{path}:{use.line}", reason, enabled)
    yield from _programs(path, node_programs(text), declares, aside=aside)


def _programs(
    path: str, uses: Iterator[Use] | list[Use], declares: _Declares, *, aside: bool
) -> Iterator[Step]:
    for use in uses:
        name = use.name
        if name in BASE_PROGRAMS or name.startswith("python"):
            continue
        source = f"{path}:{use.line}"
        verb = "asks for" if use.optional else "runs"
        check = f"command -v {name}"
        if package := APT_OF_PROGRAM.get(name):
            enabled = not (declares.apt or use.optional or aside)
            reason = f"{path} {verb} {name}, which {package} provides."
            yield Step(StepKind.APT, (package,), source, reason, enabled)
            yield Step(StepKind.CHECK, (check,), source, f"{path} {verb} {name}.", enabled)
        elif npm_package := NPM_OF_PROGRAM.get(name):
            reason = f"{path} {verb} {name}, which {npm_package} of npm provides."
            yield Step(StepKind.NPM, (npm_package,), source, reason, False)
        elif not broken_item_rule(StepKind.CHECK, check):
            reason = f"{path} {verb} {spelled_out(name)}; which package provides it is not known."
            yield Step(StepKind.CHECK, (check,), source, reason, False)


def distribution_steps(step: Step, name: str) -> Iterator[Step]:
    """What a Python distribution needs beside itself, where that is known."""
    if packages := APT_OF_DISTRIBUTION.get(name):
        yield Step(StepKind.APT, packages, step.source, f"{name} needs it to work.", step.enabled)
    if name == "playwright":
        reason = "Playwright drives a browser that it downloads itself; the build must reach it."
        yield Step(
            StepKind.COMMAND,
            ("playwright install --with-deps chromium",),
            step.source,
            reason,
            False,
        )
