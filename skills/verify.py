"""Verification: does the result work for the session's user? A structured report, with repair hints.

Uid 1000 looks at every skill with `skills.build.checker`, tries to write where it must not and where it must,
and runs the plan's own checks. A check that is `fatal` fails the build; the others are warnings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from packaging.requirements import Requirement

from sandboxes.types import DEFAULT_USER, ExecRequest
from skills.build.context import BuildContext, Item
from skills.build.failures import BuildFailed
from skills.build.steps.install import skill_path
from skills.plan import StepKind, item_key
from skills.plan.knowledge import (
    APT_OF_PROGRAM,
    BASE_PROGRAMS,
    DISTRIBUTION_OF_MODULE,
    NPM_OF_PROGRAM,
    WELL_KNOWN,
)
from skills.resolve import normalised

__all__ = ["Check", "Hint", "Report", "judge", "verify"]

_FOLDER = "/tmp/skillyard-verify"  # noqa: S108 (inside the sandbox, made by root)
_CHECKER = Path(__file__).with_name("build") / "checker.py"
_CHECK_S = 300.0
_OUTPUT_BYTES = 4_000
_OPTIONAL_FOLDERS = {"test", "tests", "example", "examples", "evals", "references"}

_APT_OF_LIBRARY: Mapping[str, str] = {
    "libGL.so.1": "libgl1",
    "libEGL.so.1": "libegl1",
    "libgobject-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libpango-1.0.so.0": "libpango-1.0-0",
    "libpangoft2-1.0.so.0": "libpangoft2-1.0-0",
    "libcairo.so.2": "libcairo2",
    "libmagic.so.1": "libmagic1",
    "libsndfile.so.1": "libsndfile1",
    "libgomp.so.1": "libgomp1",
    "libSM.so.6": "libsm6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libX11.so.6": "libx11-6",
    "libxcb.so.1": "libxcb1",
    "libzbar.so.0": "libzbar0",
}
"""Shared libraries that wheels expect of the system, and their packages in Debian 12."""

_WORKSPACE_PROBE = """
for folder in /workspace /workspace/output; do
  probe="$folder/.skillyard-probe"
  : > "$probe" && rm "$probe" || exit 1
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A plan step that would mend the failure. `certain` False: the name is a guess, to be looked at."""

    kind: StepKind
    item: str
    sentence: str
    certain: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "item": self.item,
            "sentence": self.sentence,
            "certain": self.certain,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`skill` is empty for the sandbox as a whole."""

    code: str
    name: str
    skill: str = ""
    ok: bool = True
    fatal: bool = True
    output: str = ""
    hint: Hint | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "name": self.name,
            "skill": self.skill,
            "ok": self.ok,
            "fatal": self.fatal,
            "output": self.output,
            "hint": self.hint and self.hint.to_json(),
        }


@dataclass(slots=True)
class Report:
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.fatal and not check.ok]

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.failed,
            "warnings": sum(not check.ok and not check.fatal for check in self.checks),
            "checks": [check.to_json() for check in self.checks],
        }


async def verify(context: BuildContext) -> Report:
    """Check every skill of the build, kept ones included. Raises BuildFailed only if it can't look.

    A kept skill was verified when it was installed: while this build left the system alone, only what lies
    in its folder is looked at again.
    """
    report = Report()
    await context.write(f"{_FOLDER}/checker.py", _CHECKER.read_bytes())
    report.checks.append(await _workspace(context))
    touched = any(
        item.plan.items(StepKind.APT) or item.plan.items(StepKind.COMMAND)
        for item in context.install
    )
    for item in context.items:
        deep = touched or item in context.install
        report.checks += judge(item, await _look(context, item, deep=deep))
        if not deep:
            continue
        for line in item.plan.items(StepKind.CHECK):
            report.checks.append(await _own_check(context, item, line))
    return report


async def _workspace(context: BuildContext) -> Check:
    result = await context.ask("/bin/sh", "-c", _WORKSPACE_PROBE, user=DEFAULT_USER)
    return Check(
        code="workspace_writable",
        name="The session's user can write to /workspace",
        ok=result.ok,
        output=_text(result.stdout + result.stderr),
    )


async def _look(context: BuildContext, item: Item, *, deep: bool) -> Mapping[str, Any]:
    path = f"{_FOLDER}/{item.version.digest}.json"
    wanted = {
        "path": item.path,
        "deep": deep,
        "files": [file["path"] for file in item.version.inspection["files"]],
        "pip": [normalised(Requirement(line).name) for line in item.plan.items(StepKind.PIP)],
        "npm": [item_key(StepKind.NPM, line) for line in item.plan.items(StepKind.NPM)],
    }
    await context.write(path, json.dumps(wanted).encode())
    script = 'python="$1/.venv/bin/python"; test -x "$python" || python=python3; cd /workspace && exec "$python" -I "$2" "$3"'
    result = await context.ask(
        *("/bin/sh", "-c", script, "look", item.path, f"{_FOLDER}/checker.py", path),
        user=DEFAULT_USER,
        timeout_s=_CHECK_S,
    )
    try:
        found: Mapping[str, Any] = json.loads(result.stdout)
    except ValueError:
        raise BuildFailed(
            "verify_failed",
            f"{item.name} can't be checked: the base needs python3, readable by the session's user "
            f"({_text(result.stderr)[-200:]}).",
        ) from None
    return found


async def _own_check(context: BuildContext, item: Item, line: str) -> Check:
    context.log.say(f"$ {line}")
    request = ExecRequest(
        argv=ExecRequest.shell_argv(f"export PATH={quote(skill_path(item))}\n{line}"),
        cwd=item.path,
        user=DEFAULT_USER,
        timeout_s=_CHECK_S,
    )
    result = await context.client.run(context.live, request, max_output_bytes=_OUTPUT_BYTES * 4)
    said = _text(result.stdout + result.stderr)
    if result.killed:
        said += f"\n(stopped after {result.duration_s:.0f} s)"
    context.log.output("stdout", said.splitlines())
    return Check(
        code="plan_check",
        name=line,
        skill=item.name,
        ok=result.ok,
        output=said,
        hint=None if result.ok else _program_hint(line),
    )


def judge(item: Item, found: Mapping[str, Any]) -> list[Check]:
    """Turn what the checker saw into checks, by the item's plan. Pure."""
    requirements = {
        normalised(requirement.name): requirement
        for requirement in map(Requirement, item.plan.items(StepKind.PIP))
        if requirement.marker is None or requirement.marker.evaluate(dict(found["environment"]))
    }
    return [
        check
        for seen in found["checks"]
        if (check := _judge_one(item, seen, requirements)) is not None
    ]


def _judge_one(
    item: Item, seen: Mapping[str, Any], requirements: Mapping[str, Requirement]
) -> Check | None:
    code, subject, ok = seen["code"], seen["subject"], seen["ok"]
    name, fatal, output, hint = subject, True, seen["output"], None
    if code == "files":
        name = f"{subject} files are there and readable"
    elif code == "file_missing":
        name = f"{subject} is missing"
    elif code == "file_unreadable":
        name = f"{subject} can't be read"
    elif code == "closed":
        name = "The skill can't be changed by the session's user"
    elif code == "distribution":
        requirement = requirements.get(subject)
        if requirement is None:
            return None
        version = seen["data"]["version"]
        name = f"{requirement.name} {version or ''}".rstrip()
        if ok and not requirement.specifier.contains(version, prereleases=True):
            ok, output = False, f"{requirement} was asked for, {version} is installed."
    elif code == "importable":
        if subject not in requirements:
            return None
        name = f"import {seen['data']['module']}"
        hint = None if ok else _library_hint(output)
        # Other reasons (no display, no device) may not matter to what the skill does.
        fatal = hint is not None or "cannot open shared object" in output
    elif code == "node_package":
        name = f"{subject} {seen['data']['version'] or ''}".rstrip()
    elif code == "scripts":
        name = f"{subject} scripts are well formed"
    elif code == "script":
        name = f"{subject} is well formed"
        fatal = not _is_optional(subject)
    elif code == "import":
        files = seen["data"]["files"]
        needed = seen["data"]["needed"] and not all(map(_is_optional, files))
        name = f"{subject} is imported by {files[0]} and installed by no step"
        hint = _module_hint(subject, files)
        # Only where the name of the package is beyond doubt is the plan surely wrong.
        fatal = needed and hint.certain
    return Check(
        code=code, name=name, skill=item.name, ok=ok, fatal=fatal, output=output, hint=hint
    )


def _module_hint(module: str, files: list[str]) -> Hint:
    distribution = DISTRIBUTION_OF_MODULE.get(module, module)
    certain = normalised(distribution) in WELL_KNOWN
    who = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    sentence = f"Module “{module}” is imported by {who} and in no manifest: add “{distribution}”."
    if not certain:
        sentence += " The name is a guess: look at the package first."
    return Hint(kind=StepKind.PIP, item=distribution, sentence=sentence, certain=certain)


def _library_hint(output: str) -> Hint | None:
    found = re.search(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object", output)
    package = found and _APT_OF_LIBRARY.get(found[1])
    if not found or not package:
        return None
    return Hint(
        kind=StepKind.APT,
        item=package,
        sentence=f"The system library {found[1]} is missing: add the Debian package “{package}”.",
    )


def _program_hint(line: str) -> Hint | None:
    found = re.fullmatch(r"\s*command -v ([\w.+-]+)\s*(?:>.*)?", line)
    if not found or found[1] in BASE_PROGRAMS:
        return None
    program = found[1]
    for kind, known in ((StepKind.APT, APT_OF_PROGRAM), (StepKind.NPM, NPM_OF_PROGRAM)):
        if package := known.get(program):
            return Hint(
                kind=kind,
                item=package,
                sentence=f"The program “{program}” is missing: add “{package}” ({kind.value}).",
            )
    return None


def _is_optional(path: str) -> bool:
    return any(part in _OPTIONAL_FOLDERS for part in path.split("/")[:-1])


def _text(data: bytes) -> str:
    return data.decode(errors="replace")[-_OUTPUT_BYTES:].strip()
