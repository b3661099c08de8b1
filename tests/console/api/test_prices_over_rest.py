"""What a sandbox costs, over REST: read, sent with a new backend or a change, judged before anything is saved."""

from __future__ import annotations

from typing import Any

import pytest

from console.audit.models import AuditEntry
from console.fleet.models import Backend
from console.tenants.access import Action
from tests.console.api.conftest import IssueKey
from tests.console.api.test_manners import Caller
from tests.console.cast import World


@pytest.fixture
def call(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, list(Action)))


@pytest.fixture
def path(world: World) -> str:
    return f"/tenants/{world.tenant.pk}/backends/{world.backend.pk}"


def test_it_is_set_read_kept_and_taken_away(call: Caller, path: str) -> None:
    assert call("GET", path).json()["data"]["hourly_cost"] is None

    sent = call("PATCH", path, {"hourly_cost": "0.35", "currency": "cny"})
    assert sent.status_code == 200
    read = call("GET", path).json()["data"]
    assert (read["hourly_cost"], read["currency"]) == ("0.3500", "CNY")
    assert AuditEntry.objects.filter(action="backend.price").count() == 1

    assert call("PATCH", path, {"name": "Renamed"}).status_code == 200
    assert call("GET", path).json()["data"]["hourly_cost"] == "0.3500"

    call("PATCH", path, {"hourly_cost": None})
    read = call("GET", path).json()["data"]
    assert (read["hourly_cost"], read["currency"]) == (None, "")


def test_a_new_backend_has_it_from_the_start(call: Caller, world: World) -> None:
    sent = call(
        "POST",
        f"/tenants/{world.tenant.pk}/backends",
        {
            "name": "New",
            "provider": "local",
            "settings": {"socket": "/run/x.sock"},
            "hourly_cost": 2,
            "currency": "EUR",
        },
    )

    assert sent.status_code == 201
    assert sent.json()["data"]["hourly_cost"] == "2.0000"


@pytest.mark.parametrize(
    "price",
    [
        {"hourly_cost": "1"},
        {"hourly_cost": "1", "currency": "€"},
        {"hourly_cost": "-1", "currency": "EUR"},
        {"hourly_cost": "0.00001", "currency": "EUR"},
        {"hourly_cost": "dear", "currency": "EUR"},
    ],
)
def test_what_is_no_price_changes_nothing(
    price: dict[str, Any], call: Caller, path: str, world: World
) -> None:
    sent = call("PATCH", path, {"name": "Renamed", **price})

    assert sent.status_code in (400, 422)
    row = Backend.objects.get(pk=world.backend.pk)
    assert (row.name, row.hourly_cost) == (world.backend.name, None)
