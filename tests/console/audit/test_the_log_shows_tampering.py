"""Entries are chained by hash: a change, a gap, a swap or a cut end is found."""

from __future__ import annotations

from typing import Any

import pytest

from console.audit import tasks
from console.audit.models import AuditChain, AuditEntry
from console.audit.services import SYSTEM, record, verify
from console.tenants.models import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def chain() -> AuditChain:
    tenant = Tenant.objects.create(slug="acme", name="Acme")
    for number in range(5):
        record(
            actor=SYSTEM,
            action="test.do",
            target=str(number),
            tenant_id=tenant.pk,
            details={"n": number, "when": number * 0.1},
        )
    record(actor=SYSTEM, action="test.other")
    return AuditChain.objects.get(key=tenant.pk)


def test_an_untouched_log_is_unbroken(chain: AuditChain) -> None:
    result = verify(chain)

    assert (result.entries, result.broken) == (5, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("actor", "somebody else"), ("details", {"n": 99}), ("outcome", "denied"), ("target", "x")],
)
def test_a_changed_entry_is_found(chain: AuditChain, field: str, value: object) -> None:
    AuditEntry.objects.filter(chain=chain, number=3).update(**{field: value})

    result = verify(chain)

    assert result.broken == 3
    assert "changed" in result.reason


@pytest.mark.parametrize(("number", "found"), [(1, 1), (3, 3), (5, 5)])
def test_a_removed_entry_is_found(chain: AuditChain, number: int, found: int) -> None:
    AuditEntry.objects.filter(chain=chain, number=number).delete()

    assert verify(chain).broken == found


def test_two_swapped_entries_are_found(chain: AuditChain) -> None:
    for old, new in ((2, 20), (3, 2), (20, 3)):
        AuditEntry.objects.filter(chain=chain, number=old).update(number=new)

    assert verify(chain).broken == 2


def test_what_is_written_while_it_is_verified_is_no_gap(chain: AuditChain) -> None:
    record(actor=SYSTEM, action="test.do", target="later", tenant_id=chain.key)

    assert verify(chain).broken == 0, "as the chain was when it was read"
    chain.refresh_from_db()
    assert verify(chain).entries == 6


def test_the_daily_verification_is_written_down(chain: AuditChain, settings: Any) -> None:
    AuditEntry.objects.filter(chain=chain, number=4).update(actor="somebody else")

    tasks.verify_chains.run()

    chain.refresh_from_db()
    assert chain.broken == 4
    assert chain.verified_at is not None
    platform = AuditChain.objects.get(key="")
    assert (platform.broken, platform.verified_at is None) == (0, False)
    named = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert tasks.verify_chains.name in named
