"""Keys are shown once and grant no more than their maker has; a tenant never loses its last admin."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from console.tenants.keys import authenticate
from console.tenants.models import ApiKey, Membership, Role, User
from tests.console.cast import World


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


def make_key(client: Client, **values: object) -> tuple[int, str]:
    form = {"name": "robot", "scopes": ["view", "run"], "kind": "sky", "lifetime": "30", **values}
    response = client.post(reverse("web:keys"), form)
    return response.status_code, response.content.decode()


@pytest.mark.parametrize("kind", ["sky", "e2b"])
def test_a_key_is_shown_once_and_opens_what_it_says(admin: Client, world: World, kind: str) -> None:
    _, text = make_key(admin, kind=kind, space=world.space.pk)

    secret = re.search(rf"{kind}_[0-9a-f]{{40}}", text)
    assert secret is not None
    key = authenticate(secret.group())
    assert key is not None
    assert (key.space, key.scopes) == (world.space, ["view", "run"])
    assert secret.group() not in admin.get(reverse("web:keys")).content.decode()


def test_a_revoked_key_opens_nothing(admin: Client, world: World) -> None:
    _, text = make_key(admin)
    secret = re.search(r"sky_[0-9a-f]{40}", text)
    assert secret is not None
    key = authenticate(secret.group())
    assert key is not None

    admin.post(reverse("web:revoke-key", args=[key.pk]))

    assert authenticate(secret.group()) is None


@pytest.mark.parametrize("secret", ["", "sky_", "sky_" + "0" * 40, "x" * 5000, "e2b_" + "g" * 40])
def test_an_unknown_key_opens_nothing(db: None, secret: str) -> None:
    assert authenticate(secret) is None


def test_nobody_without_the_right_makes_a_key(world: World, client: Client) -> None:
    client.force_login(world.people["owner"])
    before = ApiKey.objects.count()

    status, _ = make_key(client)

    assert status in (403, 404)
    assert ApiKey.objects.count() == before


def test_the_last_admin_stays(admin: Client, world: World) -> None:
    last = Membership.objects.get(tenant=world.tenant, role=Role.ADMIN)

    removed = admin.post(reverse("web:remove-member", args=[last.pk]))
    lowered = admin.post(reverse("web:change-member", args=[last.pk]), {"role": "viewer"})

    assert (removed.status_code, lowered.status_code) == (409, 409)
    assert "last admin" in removed.content.decode()
    last.refresh_from_db()
    assert last.role == Role.ADMIN


def test_a_new_person_gets_a_role_and_a_checked_password(admin: Client, world: World) -> None:
    url = reverse("web:members")
    form = {"username": "newcomer", "role": "viewer", "space": world.space.pk}

    weak = admin.post(url, {**form, "password": "12345"})
    good = admin.post(url, {**form, "password": "a long and odd phrase"})

    assert (weak.status_code, good.status_code) == (422, 302)
    membership = User.objects.get(username="newcomer").memberships.get()
    assert (membership.role, membership.space) == ("viewer", world.space)


def test_only_the_platforms_admin_is_offered_a_key_for_the_platform(
    admin: Client, world: World, client: Client
) -> None:
    assert make_key(admin, scopes=["platform"])[0] == 422
    client.force_login(User.objects.create_superuser("root"))
    status, text = make_key(client, scopes=["platform"], tenant=world.tenant.pk)
    assert status == 200
    assert re.search(r"sky_[0-9a-f]{40}", text)
    assert ApiKey.objects.latest("id").scopes == ["platform"]
