"""JSON round trips, edits from a browser, and differences."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skills.plan import (
    Plan,
    PlanNote,
    PlanProblem,
    PlanRefused,
    Step,
    StepKind,
    UnknownManifest,
    diff_plans,
    validate_plan,
)
from tests.skills.plan.test_manifests_are_read import plan_of

SOURCES = {
    "requirements.txt": "requests>=2\npandas[excel]==2.2.0\n",
    "package.json": '{"dependencies": {"lodash": "^4 || ^5", "@s/x": ">=1 <2"}}',
    "apt.txt": "ffmpeg\ng++\n",
    "a.py": "import yaml, unheard_of\nimport subprocess\nsubprocess.run(['gs'])\n",
    "Gemfile": "",
}


def test_a_made_plan_survives_json_and_validation() -> None:
    plan = plan_of(SOURCES)
    data = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(data) == plan == validate_plan(data)
    assert data["schema_version"] == 1
    assert plan_of(SOURCES) == plan, "the same package makes the same plan"


texts = st.text(max_size=30)
steps = st.builds(
    Step,
    kind=st.sampled_from(StepKind),
    items=st.lists(texts, max_size=4).map(tuple),
    source=texts,
    reason=texts,
    enabled=st.booleans(),
)
plans = st.builds(
    Plan,
    steps=st.lists(steps, max_size=5).map(tuple),
    unknown=st.lists(st.builds(UnknownManifest, texts, texts), max_size=2).map(tuple),
    notes=st.lists(st.builds(PlanNote, texts, texts, texts), max_size=2).map(tuple),
)


@settings(max_examples=80, deadline=None)
@given(plans)
def test_json_round_trips_exactly(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["schema_version", "steps", "unknown", "notes", "kind", "items", "source", "reason", "enabled", "x"]),
        inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(json_values)
def test_any_json_is_a_plan_or_a_refusal(data: Any) -> None:
    problems: tuple[PlanProblem, ...] = ()
    try:
        validate_plan(data)
    except PlanRefused as refusal:
        problems = refusal.problems
    assert all(problem.code and problem.sentence for problem in problems)


SHAPES = [
    (lambda data: data.update(schema_version=2), "schema_version"),
    (lambda data: data.update(schema_version=True), "schema_version"),
    (lambda data: data.pop("schema_version"), "schema_version"),
    (lambda data: data.update(extra=1), "field_unknown"),
    (lambda data: data.update(steps={}), "field_type"),
    (lambda data: data.update(steps=[1]), "field_type"),
    (lambda data: data["steps"][0].update(kind="brew"), "kind_unknown"),
    (lambda data: data["steps"][0].update(kind=[]), "kind_unknown"),
    (lambda data: data["steps"][0].update(items="x"), "field_type"),
    (lambda data: data["steps"][0].update(items=[1]), "field_type"),
    (lambda data: data["steps"][0].update(items=[]), "step_empty"),
    (lambda data: data["steps"][0].update(enabled="yes"), "field_type"),
    (lambda data: data["steps"][0].update(cwd="/"), "field_unknown"),
    (lambda data: data["steps"][0].update(reason="x" * 5_000), "too_long"),
    (lambda data: data.update(steps=data["steps"] * 600), "too_many_steps"),
    (lambda data: data["steps"][0].update(items=["x"] * 1_001), "too_many_items"),
]


@pytest.mark.parametrize(("edit", "code"), SHAPES)
def test_wrong_shapes(edit: Any, code: str) -> None:
    data = copy.deepcopy(plan_of(SOURCES).to_json())
    edit(data)
    with pytest.raises(PlanRefused) as refusal:
        validate_plan(data)
    assert refusal.value.code == code


def edited(kind: str, *items: str) -> dict[str, Any]:
    step = {"kind": kind, "items": list(items), "source": "admin", "reason": "", "enabled": True}
    return {"schema_version": 1, "steps": [step]}


ACCEPTED = [
    ("apt", "ffmpeg"), ("apt", "g++"), ("apt", "libc6:amd64"), ("apt", "jq=1.6-2.1+deb12u1"),
    ("apt", "python3.11"), ("pip", "requests"), ("pip", "PyYAML>=6,<7"), ("pip", "a[b,c]~=1.0"),
    ("pip", "x; python_version < '3.12'"), ("pip", "x @ https://x.example/x-1.0.whl"),
    ("pip", "x @ git+https://x.example/x@v1"), ("npm", "lodash"), ("npm", "@scope/x@^1.2 || 2.x"),
    ("npm", "x@latest"), ("npm", "x@>=1.0.0 <2.0.0"), ("command", "python -m nltk.downloader punkt"),
    ("check", "command -v jq && jq --version"), ("check", "test \"$(id -u)\" = 1000"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "item"), ACCEPTED)
def test_items_that_are_taken(kind: str, item: str) -> None:
    assert validate_plan(edited(kind, item)).steps[0].items == (item,)


REFUSED = [
    *[(kind, item, "item_option") for kind in StepKind for item in ("-x", "--help", "-r x")],
    *[(kind, item, "item_empty") for kind in StepKind for item in ("", " ")],
    *[(kind, item, "item_hidden") for kind in StepKind for item in ("a\nb", "a\0", "a\u202eb")],
    *[(kind, " a", "item_blanks") for kind in StepKind],
    *[(kind, "a" * 5_000, None) for kind in StepKind],
    *[("apt", item, "apt_name") for item in (
        "x", "Foo", "foo;rm", "foo bar", "foo$(x)", "./foo.deb", "foo-", "foo/sid", "foo*", "foo=", "~nx",
        "foo=1 2", "|x", "foo&&x")],
    *[("pip", item, "pip_requirement") for item in (
        "foo bar", "./x", "/etc/x.whl", "../x", "foo; rm -rf", "$(x)", "foo==", "a`b`", "foo|x",
        "https://x.example/x.whl", "git+https://x.example/x", "x --index-url=http://y.example")],
    *[("pip", item, "pip_url") for item in (
        "x @ http://x.example/x.whl", "x @ file:///etc/x", "x @ git+ssh://x.example/x",
        "x @ https://x.example/${HOME}")],
    ("pip", "x @ https://user:pass@x.example/x.whl", "pip_credentials"),
    *[("npm", item, "npm_name") for item in (
        "Foo", "foo bar", "../x", "./x", "/x", "foo;x", "@scope", "@/x", ".x", "_x", "user/repo",
        "https://x.example/x.tgz", "github:u/r", "x" * 215, "$(x)", "foo|x")],
    *[("npm", item, "npm_range") for item in (
        "x@file:../y", "x@https://y.example", "x@npm:y@1", "x@$(y)", "x@1;y", "x@", "x@git+ssh://y")],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "item", "code"), REFUSED)
def test_items_that_are_refused(kind: str, item: str, code: str | None) -> None:
    with pytest.raises(PlanRefused) as refusal:
        validate_plan(edited(kind, item))
    problem = refusal.value.problems[0]
    assert problem.code == (code or problem.code)
    if problem.code != "too_long":
        assert problem.step == 0
        assert problem.item == item
        assert ": " in problem.sentence, "the mend is in the sentence"


def test_every_refused_item_is_named() -> None:
    data = edited("pip", "ok", "-bad", "./worse")
    data["steps"].append(edited("apt", "Also;bad")["steps"][0])
    with pytest.raises(PlanRefused) as refusal:
        validate_plan(data)
    assert [(p.step, p.item) for p in refusal.value.problems] == [
        (0, "-bad"), (0, "./worse"), (1, "Also;bad"),
    ]  # fmt: skip


def plan(*items: tuple[StepKind, str, bool]) -> Plan:
    return Plan(tuple(Step(kind, (item,), "admin", "", enabled) for kind, item, enabled in items))


def test_a_diff_names_what_a_build_would_do_differently() -> None:
    before = plan(
        (StepKind.PIP, "PyYAML>=5", True), (StepKind.PIP, "six", True), (StepKind.APT, "jq", False),
        (StepKind.NPM, "@s/x@1", True),
    )  # fmt: skip
    after = plan(
        (StepKind.PIP, "pyyaml>=6", True),
        (StepKind.APT, "jq", True),
        (StepKind.NPM, "@s/x@2", True),
    )
    diff = diff_plans(before, after)
    assert [(c.kind, c.name) for c in diff.added] == [(StepKind.APT, "jq")]
    assert [(c.kind, c.name) for c in diff.removed] == [(StepKind.PIP, "six")]
    assert [(c.name, c.before, c.after) for c in diff.changed] == [
        ("@s/x", "@s/x@1", "@s/x@2"), ("pyyaml", "PyYAML>=5", "pyyaml>=6"),
    ]  # fmt: skip
    assert json.loads(json.dumps(diff.to_json()))["same"] is False
    assert diff_plans(before, before).same


def test_sources_and_suggestions_make_no_difference() -> None:
    before = plan((StepKind.PIP, "six", True))
    after = Plan(
        (
            Step(StepKind.PIP, ("six",), "elsewhere:3", "why"),
            Step(StepKind.APT, ("jq",), "", "", False),
        )
    )
    assert diff_plans(before, after).same
    assert before.digest == after.digest
    assert before.digest != plan((StepKind.PIP, "six>1", True)).digest
