"""What a report says of what the checker saw, and how a hint becomes a plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.tenants.models import Space
from sandboxes.errors import InvalidRequest
from skills import services
from skills.build.context import Item
from skills.models import Build, BuildState, PlanRevision, Skill, SkillVersion
from skills.plan import Plan, Step, StepKind
from skills.services.hints import with_item
from skills.verify import Check, judge
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install, run

CHECKER = Path(__file__).parents[3] / "skills/build/checker.py"


def item(*pip: str) -> Item:
    plan = Plan((Step(StepKind.PIP, pip, "admin", ""),))
    version = SkillVersion(skill=Skill(name="one"), number=1, digest="d")
    return Item("skl", "one", version, PlanRevision(version=version, number=1), plan)


def judged(code: str, subject: str, ok: bool, *pip: str, output: str = "", **data: Any) -> Check:
    seen = {"code": code, "subject": subject, "ok": ok, "output": output, "data": data}
    found = {"environment": {"python_version": "3.11", "sys_platform": "linux"}, "checks": [seen]}
    (check,) = judge(item(*pip), found)
    return check


def test_an_import_that_nothing_provides_fails_with_a_hint() -> None:
    check = judged("import", "yaml", False, files=["scripts/a.py"], needed=True)
    assert (check.ok, check.fatal) == (False, True)
    assert check.hint is not None
    assert (check.hint.kind, check.hint.item, check.hint.certain) == (StepKind.PIP, "PyYAML", True)
    assert check.hint.sentence == (
        "Module “yaml” is imported by scripts/a.py and in no manifest: add “PyYAML”."
    )


@pytest.mark.parametrize(
    ("module", "files", "needed"),
    [
        ("yaml", ["scripts/a.py"], False),
        ("yaml", ["tests/a.py"], True),
        ("some_host_module", ["scripts/a.py"], True),
    ],
)
def test_an_import_that_may_not_matter_is_a_warning(
    module: str, files: list[str], needed: bool
) -> None:
    check = judged("import", module, False, files=files, needed=needed)
    assert (check.ok, check.fatal) == (False, False)
    assert check.hint is not None


def test_a_guessed_name_is_called_a_guess() -> None:
    check = judged("import", "obscure", False, files=["a.py", "b.py"], needed=True)
    assert check.hint is not None
    assert not check.hint.certain
    assert "a guess" in check.hint.sentence


def test_a_missing_system_library_is_named_with_its_package() -> None:
    error = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    check = judged(
        "importable", "opencv-python", False, "opencv-python", output=error, module="cv2"
    )
    assert check.fatal
    assert check.hint is not None
    assert (check.hint.kind, check.hint.item) == (StepKind.APT, "libgl1")


def test_an_import_that_needs_a_display_is_a_warning() -> None:
    check = judged("importable", "x", False, "x", output="KeyError: 'DISPLAY'", module="x")
    assert (check.ok, check.fatal, check.hint) == (False, False, None)


def test_a_version_outside_the_requirement_fails() -> None:
    check = judged("distribution", "six", True, "six>=2", version="1.16.0")
    assert (check.ok, check.fatal) == (False, True)
    assert check.output == "six>=2 was asked for, 1.16.0 is installed."


def test_a_requirement_for_another_system_is_not_looked_for() -> None:
    seen = {"code": "distribution", "subject": "x", "ok": False, "output": "", "data": {}}
    found = {"environment": {"sys_platform": "linux"}, "checks": [seen]}
    assert judge(item("x; sys_platform == 'win32'"), found) == []


def test_a_missing_program_is_hinted_at_and_one_click_mends_it(
    space: Space, account: FileProvider
) -> None:
    version = add_skill(space, "one", steps={StepKind.CHECK: ["command -v pdftotext"]})
    account.results["command -v pdftotext"] = (1, b"", b"")
    failed = install(space, version)
    assert (failed.state, failed.error_code) == (BuildState.FAILED, "verify_failed")
    index, check = next(
        (n, c) for n, c in enumerate(failed.report["checks"]) if c["code"] == "plan_check"
    )
    assert (check["hint"]["kind"], check["hint"]["item"]) == ("apt", "poppler-utils")
    retried = services.apply_hint(build=failed, index=index, actor=ACTOR)
    assert version.current_plan.plan().items(StepKind.APT) == ("poppler-utils",)
    account.results.clear()
    assert run(retried).state == BuildState.SUCCEEDED
    assert any("poppler-utils" in line for line in account.ran)


@pytest.mark.parametrize("index", [-1, 0, 99])
def test_a_hint_that_is_not_there_is_refused(space: Space, index: int) -> None:
    build = Build.objects.create(space=space, state=BuildState.FAILED, report={"checks": [{}]})
    with pytest.raises(InvalidRequest, match="no such repair hint"):
        services.apply_hint(build=build, index=index, actor=ACTOR)


def test_a_hint_turns_a_suggestion_on_instead_of_doubling_it() -> None:
    suggested = Plan((Step(StepKind.PIP, ("PyYAML",), "SKILL.md:3", "", False),))
    plan = with_item(suggested, StepKind.PIP, "PyYAML", "because")
    assert plan.items(StepKind.PIP) == ("PyYAML",)
    assert len(plan.steps) == 1
    assert with_item(plan, StepKind.PIP, "PyYAML", "because") == plan


def check_folder(folder: Path, tmp_path: Path, **wanted: Any) -> dict[str, dict[str, Any]]:
    """Run the checker on a folder as it runs in a sandbox; its checks by code and subject."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    spec = {"path": str(folder), "deep": True, "files": names, "pip": [], "npm": [], **wanted}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-I", str(CHECKER), str(path)], capture_output=True, text=True, check=True
    )
    return {f"{c['code']} {c['subject']}": c for c in json.loads(done.stdout)["checks"]}


def test_the_checker_reads_scripts_without_running_them(tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "ok.py").write_text("import os, json, helper\n")
    (folder / "helper.py").write_text("raise SystemExit('must never run')\n")
    (folder / "bad.py").write_text("print 'two'\n")
    (folder / "needs.py").write_text("import nowhere_to_be_found\n")
    (folder / "maybe.py").write_text(
        "try:\n    import maybe_there\nexcept ImportError:\n    pass\n"
    )
    (folder / "bad.sh").write_text("if true; then\n")
    (folder / "tool").write_text("#!/usr/bin/env python3\ndef broken(:\n")
    seen = check_folder(folder, tmp_path)
    assert not seen["script bad.py"]["ok"]
    assert not seen["script bad.sh"]["ok"]
    assert not seen["script tool"]["ok"]
    assert "script ok.py" not in seen
    assert seen["import nowhere_to_be_found"]["data"] == {"files": ["needs.py"], "needed": True}
    assert seen["import maybe_there"]["data"]["needed"] is False
    assert "import helper" not in seen


def test_the_checker_sees_missing_files_packages_and_open_folders(tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("x")
    seen = check_folder(
        folder, tmp_path, files=["SKILL.md", "gone.txt"], pip=["packaging", "nowhere"], npm=["pad"]
    )
    assert not seen["file_missing gone.txt"]["ok"]
    assert seen["distribution packaging"]["data"]["version"]
    assert seen["importable packaging"]["ok"]
    assert not seen["distribution nowhere"]["ok"]
    assert not seen["node_package pad"]["ok"]
    closed = next(check for key, check in seen.items() if key.startswith("closed"))
    assert not closed["ok"]
