"""What manifests declare becomes steps that are on, each with its place and reason."""

from __future__ import annotations

import json

import pytest

from skills.plan import Plan, Step, StepKind, make_plan
from tests.skills.package.builders import skill


def plan_of(tree: dict[str, str], skill_md: str = "") -> Plan:
    text = skill_md or "---\nname: demo\ndescription: d\n---\nbody\n"
    return make_plan(
        skill({name: content.encode() for name, content in tree.items()}, skill_md=text.encode())
    )


def on(plan: Plan, kind: StepKind) -> list[str]:
    return list(plan.items(kind))


def suggested(plan: Plan, kind: StepKind) -> list[str]:
    return [i for s in plan.steps if s.kind is kind and not s.enabled for i in s.items]


@pytest.mark.parametrize(
    "path", ["requirements.txt", "scripts/requirements.txt", "a/b/c/requirements.txt"]
)
def test_requirements_up_to_three_folders_deep(path: str) -> None:
    plan = plan_of(
        {path: "# comment\nrequests>=2,<3  # why\npandas[excel]==2.2.0 ; python_version > '3.8'\n"}
    )
    assert plan.steps == (
        Step(
            StepKind.PIP,
            ("requests>=2,<3", "pandas[excel]==2.2.0 ; python_version > '3.8'"),
            f"{path}:2",
            f"It is declared in {path}.",
        ),
    )


def test_a_deeper_manifest_is_named_but_not_read() -> None:
    plan = plan_of({"a/b/c/d/requirements.txt": "x\n"})
    assert not plan.steps
    assert [(note.code, note.source) for note in plan.notes] == [
        ("manifest_too_deep", "a/b/c/d/requirements.txt:1")
    ]


def test_options_of_requirements_files_never_reach_the_installer() -> None:
    plan = plan_of(
        {
            "requirements.txt": "--index-url https://user:hunter22@evil.example/\n-e .\n./x.whl\n"
            "file:///etc\nfoo @ http://x.example/f.whl\nbar @ git+ssh://x.example/f\n"
            "six==1.16.0 \\\n    --hash=sha256:abc\nok @ https://x.example/ok.whl\n-r more.txt\n"
            "-r missing.txt\n-c constraints.txt\nnot a requirement!\n",
            "more.txt": "rich\n-r requirements.txt\n",
            "constraints.txt": "six<2\n",
        }
    )
    assert on(plan, StepKind.PIP) == ["six==1.16.0", "ok @ https://x.example/ok.whl", "rich"]
    assert {note.code for note in plan.notes} == {
        "option_left_out", "editable_left_out", "local_left_out", "item_left_out",
        "hashes_left_out", "include_missing", "constraint_left_out",
    }  # fmt: skip
    assert "hunter22" not in json.dumps(plan.to_json())


def test_development_requirements_are_only_suggested() -> None:
    plan = plan_of({"requirements-dev.txt": "pytest\n", "tests/requirements.txt": "vcrpy\n"})
    assert on(plan, StepKind.PIP) == []
    assert suggested(plan, StepKind.PIP) == ["pytest", "vcrpy"]


def test_pyproject_pinned_by_its_lock() -> None:
    plan = plan_of(
        {
            "pyproject.toml": '[project]\nname = "x"\ndependencies = [\n  "Requests>=2",\n  "rich"]\n'
            '[project.optional-dependencies]\nextra = ["numpy"]\n',
            "uv.lock": '[[package]]\nname = "requests"\nversion = "2.32.3"\n',
        }
    )
    assert on(plan, StepKind.PIP) == ["Requests==2.32.3", "rich"]
    assert suggested(plan, StepKind.PIP) == ["numpy"]
    assert plan.steps[0].source == "pyproject.toml:4"


@pytest.mark.parametrize(
    ("constraint", "item"),
    [
        ('"^1.2.3"', "a>=1.2.3,<2"),
        ('"^0.2.3"', "a>=0.2.3,<0.3"),
        ('"^0.0.3"', "a>=0.0.3,<0.0.4"),
        ('"~1.2.3"', "a~=1.2.3"),
        ('"~1.2"', "a==1.2.*"),
        ('"1.2"', "a==1.2"),
        ('"*"', "a"),
        ('">=1,<2"', "a>=1,<2"),
        ('{version = "^1", extras = ["b"]}', "a[b]>=1,<2"),
    ],
)
def test_poetry_constraints(constraint: str, item: str) -> None:
    plan = plan_of(
        {"pyproject.toml": f'[tool.poetry.dependencies]\npython = "^3.11"\na = {constraint}\n'}
    )
    assert on(plan, StepKind.PIP) == [item]


def test_pipfile_and_setup_cfg() -> None:
    plan = plan_of(
        {
            "Pipfile": '[packages]\nsix = "*"\n',
            "Pipfile.lock": '{"default": {"six": {"version": "==1.16.0"}}}',
            "b/setup.cfg": "[options]\ninstall_requires =\n  rich>=13\n",
        }
    )
    assert on(plan, StepKind.PIP) == ["six==1.16.0", "rich>=13"]


def test_pep_723_headers() -> None:
    script = '#!/usr/bin/env python3\n# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "httpx",\n# ]\n# ///\nimport httpx\n'
    plan = plan_of({"scripts/a.py": script})
    assert [(s.items, s.source, s.enabled) for s in plan.steps] == [
        (("httpx",), "scripts/a.py:2", True)
    ]
    assert "PEP 723" in plan.steps[0].reason
    unclosed = plan_of({"scripts/a.py": script.replace("# ///\nimport", "import")})
    assert "PEP 723" not in unclosed.steps[0].reason


def test_package_json_pinned_by_its_lock() -> None:
    package = {
        "dependencies": {"lodash": "^4", "@scope/x": "1.0.0", "any": "*", "local": "file:../x"},
        "devDependencies": {"eslint": "^9"},
        "scripts": {"postinstall": "node evil.js"},
    }
    lock = {"packages": {"": {}, "node_modules/lodash": {"version": "4.17.21"}}}
    plan = plan_of({"a/package.json": json.dumps(package), "a/package-lock.json": json.dumps(lock)})
    assert on(plan, StepKind.NPM) == ["lodash@4.17.21", "@scope/x@1.0.0", "any"]
    assert suggested(plan, StepKind.NPM) == ["eslint@^9"]
    assert {note.code for note in plan.notes} == {"local_left_out", "install_script_left_out"}


@pytest.mark.parametrize("name", ["apt.txt", "packages.txt", "Aptfile", "apt-packages.txt"])
def test_apt_lists(name: str) -> None:
    plan = plan_of({name: "# needed\nffmpeg\npoppler-utils jq # two\n-o=evil\nFoo;rm\nremove-\n"})
    assert on(plan, StepKind.APT) == ["ffmpeg", "poppler-utils", "jq"]
    assert [note.source for note in plan.notes] == [f"{name}:{n}" for n in (4, 5, 6)]


UNKNOWN = [
    "app.csproj", "Gemfile", "bun.lock", "bun.lockb", "Cargo.toml", "go.mod", "environment.yml",
    "pnpm-lock.yaml", "yarn.lock", "setup.py", "Dockerfile", "deno.json", "composer.json", "pom.xml",
]  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_manifests_are_named(name: str) -> None:
    plan = plan_of({f"src/{name}": ""})
    assert [entry.path for entry in plan.unknown] == [f"src/{name}"]
    assert plan.unknown[0].sentence.startswith(f"src/{name} is ")


def test_a_dockerfile_only_suggests() -> None:
    plan = plan_of(
        {
            "Dockerfile": "FROM x\nRUN apt-get update && apt-get install -y \\\n  ffmpeg jq\nRUN pip install six\n"
        }
    )
    assert plan.items(StepKind.APT) == plan.items(StepKind.PIP) == ()
    assert suggested(plan, StepKind.APT) == ["ffmpeg", "jq"]
    assert suggested(plan, StepKind.PIP) == ["six"]


@pytest.mark.parametrize(
    "tree",
    [
        {"pyproject.toml": "[[["},
        {"pyproject.toml": "a = " + "[" * 5_000},
        {"package.json": "{"},
        {"package.json": "[" * 100_000},
        {"package.json": "[]"},
        {"package.json": '{"dependencies": [1]}'},
        {"setup.cfg": "x"},
        {"Pipfile": "[packages]\na = 1\n"},
        {"requirements.txt": "\0" + "x"},
        {"pyproject.toml": "project = 1\ntool = 2\n"},
        {"uv.lock": "package = 3", "pyproject.toml": '[project]\ndependencies = ["a"]\n'},
    ],
)
def test_broken_manifests_do_not_break_the_plan(tree: dict[str, str]) -> None:
    plan = plan_of(tree)
    assert all(step.items == ("a",) for step in plan.steps)


def test_manifests_that_disagree_are_pointed_out() -> None:
    plan = plan_of({"requirements.txt": "six==1.15\n", "scripts/requirements.txt": "six==1.16\n"})
    assert on(plan, StepKind.PIP) == ["six==1.15", "six==1.16"]
    assert [note.code for note in plan.notes] == ["versions_differ"]


def test_windows_line_ends() -> None:
    assert on(plan_of({"requirements.txt": "six\r\nrich\r\n"}), StepKind.PIP) == ["six", "rich"]
