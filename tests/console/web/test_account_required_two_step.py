"""A tenant may want two-step sign-in of its members: whoever lacks it can do nothing but set it up."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from console.tenants import two_step
from console.tenants.access import Principal
from console.tenants.models import User
from console.web.middleware import OPEN_WITHOUT_TWO_STEP
from console.web.preview.tickets import session_for
from tests.console.cast import World
from tests.console.web.account_world import (
    PASSWORD,
    audited,
    code_of,
    enrol,
    give_in_password,
    give_password,
    text_of,
)
from tests.console.web.test_every_page_asks_who_you_are import RULES, address

pytestmark = pytest.mark.usefixtures("clock", "quick_passwords")


@pytest.fixture
def strict(world: World) -> World:
    world.tenant.two_step_required = True
    world.tenant.save()
    return world


@pytest.fixture
def owing(strict: World, client: Client) -> Client:
    """A member without a second step, signed in by their password."""
    give_in_password(client, give_password(strict.people["admin"]))
    return client


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_page_leads_to_setting_it_up(name: str, owing: Client, strict: World) -> None:
    response = getattr(owing, RULES[name].method)(address(name, strict))

    if f"web:{name}" in OPEN_WITHOUT_TWO_STEP:
        assert response.status_code != 403
    else:
        assert response.status_code == 302
        assert response.headers["Location"] == reverse("web:two-step")


def test_a_part_of_a_page_leads_there_as_a_whole(owing: Client) -> None:
    response = owing.get(reverse("web:sessions"), headers={"HX-Request": "true"})

    assert response.headers["HX-Redirect"] == reverse("web:two-step")


def test_rest_and_previews_are_closed_too(owing: Client, strict: World) -> None:
    refused = owing.get("/api/v1/spaces")

    assert refused.status_code == 403
    assert "two-step sign-in" in refused.json()["error"]["message"]
    assert session_for(strict.people["admin"], strict.session.pk) is None


def test_a_platform_admin_who_is_a_member_is_no_exception(strict: World) -> None:
    user = strict.people["owner"]
    user.is_superuser = True
    user.save()

    principal = Principal.of_user(user)

    assert not principal.everything
    assert not principal.spaces().exists()


def test_setting_it_up_opens_everything(owing: Client, strict: World) -> None:
    person = strict.people["admin"]
    page = text_of(owing.get(reverse("web:two-step")))
    assert "Acme wants two-step sign-in of all its members" in page

    owing.post(reverse("web:start-two-step"))
    form = {"code": code_of(person), "password": PASSWORD}
    owing.post(reverse("web:confirm-two-step"), form)

    assert owing.get(reverse("web:overview")).status_code == 200
    assert owing.get("/api/v1/spaces").status_code == 200


def test_people_of_other_tenants_notice_nothing(
    strict: World, other_world: World, client: Client
) -> None:
    client.force_login(other_world.people["viewer"])

    assert client.get(reverse("web:overview")).status_code == 200


def test_an_admin_switches_it_with_its_consequence_told(world: World, client: Client) -> None:
    admin = give_password(world.people["admin"])
    enrol(admin)
    client.force_login(admin)
    url = reverse("web:require-two-step", args=[world.tenant.pk])

    assert "4 members have no second step" in text_of(client.get(reverse("web:member-security")))
    client.post(url, {"required": "yes"})

    world.tenant.refresh_from_db()
    assert world.tenant.two_step_required
    assert "4 members have not done so yet" in text_of(client.get(reverse("web:member-security")))
    client.post(url, {"required": "no"})
    world.tenant.refresh_from_db()
    assert not world.tenant.two_step_required
    assert [entry.details for entry in audited("tenant.change")] == [
        {"two_step_required": {"before": False, "after": True}},
        {"two_step_required": {"before": True, "after": False}},
    ]


def test_an_admin_finds_out_who_lacks_it(world: World, client: Client) -> None:
    enrol(give_password(world.people["owner"]))
    client.force_login(world.people["admin"])
    url = reverse("web:member-security")

    lacking = text_of(client.get(url, {"state": "without"}))
    having = text_of(client.get(url, {"state": "with"}))
    signed_in = text_of(client.get(url, {"state": "signed_in"}))

    assert "viewer-acme" in lacking
    assert "owner-acme" not in lacking
    assert "owner-acme" in having
    assert "viewer-acme" not in having
    assert "admin-acme" in signed_in
    assert "owner-acme" not in signed_in


def test_an_admin_without_one_is_told_to_begin_with_themselves(
    world: World, client: Client
) -> None:
    client.force_login(world.people["admin"])

    answer = client.post(
        reverse("web:require-two-step", args=[world.tenant.pk]), {"required": "yes"}
    )

    assert answer.status_code == 409
    assert "Turn on your own two-step sign-in first" in text_of(answer)
    world.tenant.refresh_from_db()
    assert not world.tenant.two_step_required


def test_turning_it_off_leads_back_to_setting_it_up(strict: World, client: Client) -> None:
    person: User = give_password(strict.people["viewer"])
    enrol(person)
    client.force_login(person)

    client.post(reverse("web:stop-two-step"), {"proof": PASSWORD})

    assert two_step.device_of(person) is None
    answer = client.get(reverse("web:overview"))
    assert answer.headers["Location"] == reverse("web:two-step")
