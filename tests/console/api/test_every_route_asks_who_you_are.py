"""Each address × method × role × another tenant. A route without a rule here fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from console.api.urls import urlpatterns
from console.tenants.access import ROLE_ACTIONS, Action
from skills.models import ReleaseSkill
from tests.console.api.conftest import IssueKey
from tests.console.cast import ROLES, World

SPACE, TENANT, MEMBER = "space", "tenant", "member"


@dataclass(frozen=True)
class Rule:
    """`where` says which right counts: one in the space, one in the whole tenant, or (`member`) any of the
    tenant to see and one in the whole tenant to act. `action` None: any good key."""

    action: Action | None
    where: str = SPACE


def rules(where: str, **names: dict[str, Action]) -> dict[tuple[str, str], Rule]:
    return {
        (name.replace("_", "-"), method): Rule(action, where)
        for name, methods in names.items()
        for method, action in methods.items()
    }


VIEW, RUN, OPERATE, BUILD = Action.VIEW, Action.RUN, Action.OPERATE, Action.BUILD
POLICY, CATALOG, MANAGE = Action.POLICY, Action.CATALOG, Action.MANAGE

OPEN_TO_ALL = {"schema", "docs", "nowhere"}
RULES: dict[tuple[str, str], Rule] = {
    ("me", "GET"): Rule(None),
    ("audit", "GET"): Rule(None),
    ("audit-export", "GET"): Rule(None),
    ("audit-verify", "GET"): Rule(None),
    ("tenants", "GET"): Rule(None),
    ("tenants", "POST"): Rule(None),
    ("spaces", "GET"): Rule(None),
    ("spaces", "POST"): Rule(None),
    **rules(
        SPACE,
        space={"GET": VIEW, "PATCH": MANAGE, "DELETE": MANAGE},
        capabilities={"GET": VIEW},
        sessions={"GET": VIEW},
        session={"GET": VIEW, "DELETE": RUN},
        resolve={"POST": RUN},
        turns={"POST": RUN, "DELETE": RUN},
        pause={"POST": OPERATE},
        resume={"POST": RUN},
        rebuild_session={"POST": RUN},
        session_history={"GET": VIEW},
        exec={"POST": RUN},
        run_script={"POST": RUN},
        files={"GET": RUN, "PUT": RUN, "DELETE": RUN},
        folder={"GET": RUN, "POST": RUN},
        stat={"GET": RUN},
        inputs={"GET": RUN, "POST": RUN, "DELETE": RUN},
        outputs={"GET": RUN},
        output_file={"GET": RUN},
        output_archive={"GET": RUN},
        space_skills={"GET": VIEW},
        space_skill={"GET": VIEW},
        space_skill_files={"GET": VIEW},
        space_skill_file={"GET": VIEW},
        builds={"GET": VIEW, "POST": BUILD},
        build={"GET": VIEW},
        cancel_build={"POST": OPERATE},
        take_up_build={"POST": OPERATE},
        retry_build={"POST": BUILD},
        apply_hint={"POST": BUILD},
        build_log={"GET": VIEW},
        releases={"GET": VIEW},
        release={"GET": VIEW, "DELETE": BUILD},
        release_diff={"GET": VIEW},
        roll_back={"POST": BUILD},
        roll_out={"PUT": BUILD},
        rollout={"GET": VIEW, "DELETE": BUILD},
        promote={"POST": BUILD},
        promotions={"GET": VIEW},
        policy={"GET": VIEW, "PUT": POLICY},
        policy_history={"GET": VIEW},
        policy_test={"POST": VIEW},
        policy_apply={"POST": POLICY},
    ),
    **rules(
        TENANT,
        members={"GET": MANAGE, "POST": MANAGE},
        member={"GET": MANAGE, "PATCH": MANAGE, "DELETE": MANAGE},
        keys={"GET": MANAGE, "POST": MANAGE},
        key={"GET": MANAGE, "DELETE": MANAGE},
        backends={"GET": VIEW, "POST": MANAGE},
        backend={"GET": VIEW, "PATCH": MANAGE, "DELETE": MANAGE},
        preview_backend={"POST": MANAGE},
        credentials={"POST": MANAGE},
        former_accounts={"GET": MANAGE},
        former_account={"DELETE": MANAGE},
        cordon={"PUT": MANAGE, "DELETE": MANAGE},
        check_backend={"POST": MANAGE},
        inventory={"GET": VIEW},
        images={"GET": VIEW},
        template={"GET": VIEW, "PUT": MANAGE, "DELETE": MANAGE},
        verifications={"GET": VIEW, "POST": MANAGE},
        verification={"GET": VIEW},
        reconciles={"GET": VIEW, "POST": OPERATE},
        reconcile={"GET": VIEW},
    ),
    **rules(
        MEMBER,
        tenant={"GET": VIEW, "PATCH": MANAGE},
        skills={"GET": VIEW, "POST": CATALOG},
        skill={"GET": VIEW, "DELETE": CATALOG},
        versions={"GET": VIEW},
        version={"GET": VIEW},
        inspection={"GET": VIEW},
        plan={"GET": VIEW, "PUT": CATALOG},
    ),
}
GUARDED = sorted(route for route, rule in RULES.items() if rule.action)


def routes(patterns: Any = urlpatterns, ids: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """(pattern, names of all ids in its address)."""
    for pattern in patterns:
        found = (*ids, *pattern.pattern.converters)
        if isinstance(pattern, URLPattern):
            yield pattern, found
        else:
            yield from routes(pattern.url_patterns, found)


IDS = {str(pattern.name): ids for pattern, ids in routes()}


@pytest.fixture
def stage(world: World) -> World:
    """The space serves the release, which carries the skill."""
    ReleaseSkill.objects.create(
        release=world.release,
        position=0,
        version=world.version,
        plan=world.version.current_plan,
    )
    world.space.current_release = world.release
    world.space.save()
    return world


def visit(world: World, route: tuple[str, str], key: str | None) -> int:
    name, method = route
    ids = {
        "space": world.space.pk,
        "tenant": world.tenant.pk,
        "session": world.session.session_id,
        "name": world.skill.name,
        "build": world.build.pk,
        "index": 0,
        "release": world.release.pk,
        "member": world.people["viewer"].memberships.get().pk,
        "key": world.key.pk,
        "backend": world.backend.pk,
        "report": (world.verification if name == "verification" else world.report).pk,
        "template": "base",
        "former": world.former.pk,
        "skill": world.skill.pk,
        "number": world.version.number,
    }
    address = reverse(f"api:{name}", kwargs={wanted: ids[wanted] for wanted in IDS[name]})
    if name == "space-skill-file":
        address += "?path=SKILL.md"
    response = Client().generic(
        method,
        address,
        data=b"{}" if method in ("POST", "PUT", "PATCH") else b"",
        content_type="application/json",
        headers={"X-API-Key": key} if key else {},
    )
    if response.streaming:
        response.close()
    else:
        body = response.json() if response.content else {}
        assert body.get("success", response.status_code == 204) is (response.status_code < 400)
    return int(response.status_code)


def test_every_route_and_method_has_a_rule() -> None:
    known = {
        (str(pattern.name), method)
        for pattern, _ in routes()
        if pattern.name not in OPEN_TO_ALL
        for method in pattern.callback.cls.needs
    }

    assert known == set(RULES)
    assert {str(pattern.name) for pattern, _ in routes()} == {
        name for name, _ in RULES
    } | OPEN_TO_ALL


@pytest.mark.parametrize("route", sorted(RULES))
def test_nobody_gets_in_without_credentials(route: tuple[str, str], world: World) -> None:
    assert visit(world, route, None) == 401
    assert visit(world, route, "sky_" + "0" * 40) == 401


@pytest.mark.parametrize("route", GUARDED)
def test_another_tenants_things_do_not_exist(
    route: tuple[str, str], world: World, other_world: World, make_key: IssueKey
) -> None:
    stranger = make_key(other_world.tenant, Action)

    assert visit(world, route, stranger) == 404


@pytest.mark.parametrize("route", GUARDED)
def test_another_space_of_the_tenant_is_closed_too(
    route: tuple[str, str], stage: World, make_key: IssueKey
) -> None:
    from console.audit.services import SYSTEM
    from console.fleet.services import create_space

    neighbour = create_space(
        tenant=stage.tenant, name="Next", slug="next", backend=stage.backend, actor=SYSTEM
    )
    status = visit(stage, route, make_key(stage.tenant, Action, neighbour))

    where, action = RULES[route].where, RULES[route].action
    if where == MEMBER and action is VIEW:
        assert status not in (401, 403, 404)
    else:
        assert status == (404 if where == SPACE else 403)


@pytest.mark.parametrize("route", GUARDED)
def test_a_key_may_do_what_its_scopes_say(
    route: tuple[str, str], stage: World, make_key: IssueKey
) -> None:
    rule = RULES[route]
    for role in reversed(ROLES):
        scopes = ROLE_ACTIONS[role]
        space = None if role == "admin" else stage.space
        allowed = rule.action in scopes
        if rule.where == TENANT or (rule.where == MEMBER and rule.action is not VIEW):
            allowed = role == "admin"

        status = visit(stage, route, make_key(stage.tenant, scopes, space))

        assert (status not in (401, 403, 404)) if allowed else (status == 403), role
