"""Each page × each role × another tenant. A route without a rule here fails."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.test import Client
from django.urls import NoReverseMatch, reverse

from console.tenants.access import ROLE_ACTIONS, Action
from console.web.urls import urlpatterns
from tests.console.cast import ROLES, World


@dataclass(frozen=True)
class Rule:
    """`action` None: any signed-in person. `where` says which role counts: one in the space, one in the
    whole tenant, or (`member`) any role of the tenant to see, one in the whole tenant to act."""

    action: Action | None
    method: str = "get"
    where: str = "space"


OPEN_TO_ALL = {"sign-in", "sign-in-code"}
ANYONE = Rule(None)
VIEW = Rule(Action.VIEW)

RULES: dict[str, Rule] = {
    "overview": ANYONE,
    "hide-first-steps": Rule(None, "post"),
    "sign-out": Rule(None, "post"),
    "profile": ANYONE,
    "password": ANYONE,
    "two-step": ANYONE,
    "start-two-step": Rule(None, "post"),
    "confirm-two-step": Rule(None, "post"),
    "new-recovery-codes": Rule(None, "post"),
    "stop-two-step": Rule(None, "post"),
    "sign-ins": ANYONE,
    "end-other-sign-ins": Rule(None, "post"),
    "end-sign-in": Rule(None, "post"),
    "spaces": ANYONE,
    "new-space": ANYONE,
    "space": VIEW,
    "space-skills": VIEW,
    "network": VIEW,
    "network-apply": Rule(Action.POLICY, "post"),
    "network-test": Rule(Action.VIEW, "post"),
    "network-export": VIEW,
    "network-import": Rule(Action.POLICY, "post"),
    "install": Rule(Action.BUILD, "post"),
    "uninstall": Rule(Action.BUILD, "post"),
    "space-builds": VIEW,
    "space-releases": VIEW,
    "compare-releases": VIEW,
    "promote": Rule(Action.BUILD, "post"),
    "withdraw": Rule(Action.BUILD, "post"),
    "compact": Rule(Action.BUILD, "post"),
    "space-settings": Rule(Action.BUILD),
    "delete-space": Rule(Action.MANAGE),
    "roll-out": Rule(Action.BUILD, "post"),
    "space-sessions": VIEW,
    "start-session": Rule(Action.RUN, "post"),
    "catalog": ANYONE,
    "upload": ANYONE,
    "skill": Rule(Action.VIEW, where="member"),
    "version": Rule(Action.VIEW, where="member"),
    "plans": Rule(Action.VIEW, where="member"),
    "edit-plan": Rule(Action.CATALOG, where="member"),
    "archive": Rule(Action.CATALOG, "post", "member"),
    "builds": ANYONE,
    "build": VIEW,
    "build-log": VIEW,
    "build-log-events": VIEW,
    "cancel-build": Rule(Action.OPERATE, "post"),
    "take-up-build": Rule(Action.OPERATE, "post"),
    "retry-build": Rule(Action.BUILD, "post"),
    "apply-hint": Rule(Action.BUILD, "post"),
    "releases": ANYONE,
    "release": VIEW,
    "roll-back": Rule(Action.BUILD, "post"),
    "rebuild": Rule(Action.BUILD, "post"),
    "delete-release": Rule(Action.BUILD, "post"),
    "sessions": ANYONE,
    "session": VIEW,
    "run": Rule(Action.RUN, "post"),
    "run-stream": Rule(Action.RUN, "post"),
    "remove-input": Rule(Action.RUN, "post"),
    "show-file": Rule(Action.RUN),
    "show-picture": Rule(Action.RUN),
    "download": Rule(Action.RUN),
    "rename-file": Rule(Action.RUN),
    "remove-file": Rule(Action.RUN),
    "upload-files": Rule(Action.RUN, "post"),
    "new-folder": Rule(Action.RUN, "post"),
    "download-all": Rule(Action.RUN),
    "pause-session": Rule(Action.OPERATE, "post"),
    "resume-session": Rule(Action.RUN, "post"),
    "rebuild-session": Rule(Action.RUN, "post"),
    "destroy-session": Rule(Action.RUN, "post"),
    # Of a row each is asked by itself; a run is its maker's alone (test_many_at_once.py).
    "bulk": Rule(None, "post"),
    "bulk-run": ANYONE,
    "bulk-start": Rule(None, "post"),
    "bulk-stop": Rule(None, "post"),
    "bulk-retry": Rule(None, "post"),
    "help-index": ANYONE,
    "help": ANYONE,
    "help-image": ANYONE,
    "audit": ANYONE,
    "keys": ANYONE,
    "revoke-key": Rule(Action.MANAGE, "post", "tenant"),
    "members": ANYONE,
    "change-member": Rule(Action.MANAGE, "post", "tenant"),
    "remove-member": Rule(Action.MANAGE, "post", "tenant"),
    "member-security": ANYONE,
    "sign-out-member": Rule(Action.MANAGE, "post", "tenant"),
    "unlock-member": Rule(Action.MANAGE, "post", "tenant"),
    "require-two-step": Rule(Action.MANAGE, "post", "member"),
    "backends": ANYONE,
    "backend": Rule(Action.VIEW, where="tenant"),
    "new-backend": ANYONE,
    "edit-backend": Rule(Action.MANAGE, where="tenant"),
    "confirm-backend": Rule(Action.MANAGE, where="tenant"),
    "delete-backend": Rule(Action.MANAGE, "post", "tenant"),
    "backend-images": Rule(Action.VIEW, where="tenant"),
    "give-up-account": Rule(Action.MANAGE, "post", "tenant"),
    "build-template": Rule(Action.MANAGE, "post", "tenant"),
    "delete-template": Rule(Action.MANAGE, "post", "tenant"),
    "verify-backend": Rule(Action.MANAGE, "post", "tenant"),
    "verification": Rule(Action.VIEW, where="tenant"),
    "cordon-backend": Rule(Action.MANAGE, "post", "tenant"),
    "uncordon-backend": Rule(Action.MANAGE, "post", "tenant"),
    "check-backend": Rule(Action.MANAGE, "post", "tenant"),
    "reconcile": ANYONE,
    "reconcile-report": Rule(Action.VIEW, where="tenant"),
    "run-reconcile": Rule(Action.OPERATE, "post", "tenant"),
}

ROUTES = sorted(str(pattern.name) for pattern in urlpatterns)


def address(name: str, world: World) -> str:
    ids = {
        "name": "network.png" if name == "help-image" else "admin",
        "space_id": world.space.pk,
        "skill_id": world.skill.pk,
        "number": world.version.number,
        "build_id": world.build.pk,
        "index": 0,
        "release_id": world.release.pk,
        "pk": world.session.pk,
        "backend_id": world.backend.pk,
        "former_id": world.former.pk,
        "key_id": world.key.pk,
        "report_id": world.report.pk,
        "verification_id": world.verification.pk,
        "run_id": "blk_nobodys",
        "member_id": world.people["viewer"].memberships.get().pk,
        "user_id": world.people["viewer"].pk,
        "tenant_id": world.tenant.pk,
        "sign_in_id": "sgn_of_two_step",
    }
    pattern = next(pattern for pattern in urlpatterns if pattern.name == name)
    wanted = pattern.pattern.converters
    try:
        return reverse(f"web:{name}", kwargs={key: ids[key] for key in wanted})
    except NoReverseMatch as error:  # pragma: no cover
        raise AssertionError(f"add the ids of {name} to this test") from error


def visit(client: Client, name: str, world: World) -> int:
    form = {
        "skill": world.skill.pk,
        "version": world.version.pk,
        "role": "viewer",
        "after": 1,
        "number": 1,
    }
    response = getattr(client, RULES[name].method)(address(name, world), form)
    if response.streaming:
        response.close()
    return int(response.status_code)


def test_every_route_has_a_rule() -> None:
    assert set(ROUTES) == set(RULES) | OPEN_TO_ALL


@pytest.mark.parametrize("name", sorted(RULES))
def test_nobody_gets_in_without_signing_in(name: str, world: World, client: Client) -> None:
    response = getattr(client, RULES[name].method)(address(name, world))

    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("web:sign-in"))


@pytest.mark.parametrize("name", sorted(name for name, rule in RULES.items() if rule.action))
def test_another_tenants_things_do_not_exist(
    name: str, world: World, other_world: World, client: Client
) -> None:
    client.force_login(other_world.people["admin"])

    assert visit(client, name, world) == 404


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", sorted(name for name, rule in RULES.items() if rule.action))
def test_a_role_may_do_what_its_row_says(
    name: str, role: str, world: World, client: Client
) -> None:
    rule = RULES[name]
    client.force_login(world.people[role])

    status = visit(client, name, world)

    if rule.where == "tenant" and role != "admin":
        assert status == 404, "a role in one space sees nothing of the tenant's own things"
        return
    allowed = rule.action in ROLE_ACTIONS[role]
    if rule.where == "member" and rule.action is not Action.VIEW:
        allowed = role == "admin"
    assert (status not in (403, 404)) if allowed else (status == 403)
