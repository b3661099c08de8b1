"""What a sandbox costs: said on the backend's form, judged, audited, and used by the estimates."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.fleet.models import Backend
from console.fleet.prices import set_price
from sandboxes.errors import InvalidRequest
from tests.console.cast import World


def form(world: World, **changes: Any) -> dict[str, Any]:
    return {"name": world.backend.name, **world.backend.settings, **changes}


def save(client: Client, world: World, **changes: Any) -> Any:
    client.force_login(world.people["admin"])
    return client.post(reverse("web:edit-backend", args=[world.backend.pk]), form(world, **changes))


def price(world: World) -> tuple[Decimal | None, str]:
    row = Backend.objects.get(pk=world.backend.pk)
    return row.hourly_cost, row.currency


def test_the_form_saves_it_and_the_backend_shows_it(world: World, client: Client) -> None:
    response = save(client, world, hourly_cost="0.0828", currency="usd")

    assert response.status_code == 302
    assert price(world) == (Decimal("0.0828"), "USD")
    entry = AuditEntry.objects.get(action="backend.price")
    assert entry.details == {"before": "", "after": "0.0828 USD"}
    page = client.get(reverse("web:backend", args=[world.backend.pk])).content.decode()
    assert "0.0828 USD an hour" in page
    again = client.get(reverse("web:edit-backend", args=[world.backend.pk])).content.decode()
    assert 'value="0.0828"' in again


def test_an_empty_one_takes_it_away(world: World, client: Client) -> None:
    set_price(backend=world.backend, hourly_cost=Decimal(1), currency="EUR", actor=SYSTEM)

    save(client, world, hourly_cost="", currency="EUR")

    assert price(world) == (None, "")


def test_the_same_again_is_no_change(world: World, client: Client) -> None:
    for _ in range(2):
        save(client, world, hourly_cost="0.5", currency="EUR")

    assert AuditEntry.objects.filter(action="backend.price").count() == 1


@pytest.mark.parametrize(
    ("cost", "currency"),
    [
        *[(cost, "USD") for cost in ("-1", "0.12345", "1234567", "NaN", "x")],
        *[("1", currency) for currency in ("", "US", "U$D")],
    ],
)
def test_what_is_no_price_is_refused_beside_its_field(
    cost: str, currency: str, world: World, client: Client
) -> None:
    response = save(client, world, name="Renamed", hourly_cost=cost, currency=currency)

    assert response.context["form"].errors.keys() <= {"hourly_cost", "currency"}
    assert response.context["form"].errors
    assert price(world) == (None, "")
    assert Backend.objects.get(pk=world.backend.pk).name == world.backend.name


@pytest.mark.parametrize("cost", ["-0.1", "0.00001", "NaN", "Infinity", "12345678"])
def test_the_use_case_judges_by_itself(cost: str, world: World) -> None:
    with pytest.raises(InvalidRequest):
        set_price(backend=world.backend, hourly_cost=Decimal(cost), currency="USD", actor=SYSTEM)
    assert price(world) == (None, "")


def test_only_who_manages_the_tenant_may(world: World, client: Client) -> None:
    client.force_login(world.people["operator"])
    response = client.post(
        reverse("web:edit-backend", args=[world.backend.pk]),
        form(world, hourly_cost="1", currency="USD"),
    )

    assert response.status_code == 404
    assert price(world) == (None, "")
