"""What a backend's sandboxes cost, as people say: for the estimates of reports and of the overview."""

from __future__ import annotations

import re
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import DecimalValidator
from django.db import transaction

from console.audit.services import Actor, record
from console.fleet.models import Backend
from sandboxes.errors import InvalidRequest

__all__ = ["checked_price", "set_price"]

_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)


def checked_price(hourly_cost: Decimal | None, currency: str) -> tuple[Decimal | None, str]:
    """In normal form. InvalidRequest for a number that is negative or can't be kept, and for one without a
    currency (three letters, ISO 4217)."""
    if hourly_cost is None:
        return None, ""
    currency = currency.strip().upper()
    if not _CURRENCY.fullmatch(currency):
        raise InvalidRequest(
            "Say in which currency a sandbox's cost is: its three letters, such as USD or CNY."
        )
    try:
        DecimalValidator(max_digits=10, decimal_places=4)(hourly_cost)
    except ValidationError as error:
        raise InvalidRequest(
            "What a sandbox costs an hour has up to six digits before the point and four after it."
        ) from error
    if hourly_cost < 0:
        raise InvalidRequest("What a sandbox costs an hour can't be less than nothing.")
    return hourly_cost, currency


@transaction.atomic
def set_price(
    *, backend: Backend, hourly_cost: Decimal | None, currency: str, actor: Actor
) -> bool:
    """What one sandbox costs an hour; None is nobody knows. False if that is what the row says already.
    InvalidRequest as `checked_price`."""
    hourly_cost, currency = checked_price(hourly_cost, currency)
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    if (row.hourly_cost, row.currency) == (hourly_cost, currency):
        return False
    before = _told(row)
    row.hourly_cost, row.currency = hourly_cost, currency
    row.save(update_fields=["hourly_cost", "currency"])
    record(
        actor=actor,
        action="backend.price",
        target=row.name,
        tenant_id=row.tenant_id,
        details={"before": before, "after": _told(row)},
    )
    backend.hourly_cost, backend.currency = row.hourly_cost, row.currency
    return True


def _told(row: Backend) -> str:
    return "" if row.hourly_cost is None else f"{row.hourly_cost} {row.currency}"
