"""Verifications: run on a real backend, kept, compared; and the commands that go with backends."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from cryptography.fernet import Fernet, InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from redis import Redis as BlockingRedis

from console.audit.services import Actor
from console.celery import app
from console.fleet import tasks, verification
from console.fleet.models import Backend, Verification, VerificationState
from console.tenants.models import Space
from sandboxes.errors import Unavailable
from sandboxes.testing.simulated import SimulatedProvider

pytestmark = pytest.mark.django_db(transaction=True)


def point(name: str, outcome: str) -> dict[str, Any]:
    return {
        "number": 1,
        "name": name,
        "title": name,
        "outcome": outcome,
        "evidence": [],
        "reason": "",
        "expected": False,
        "took_s": 0.1,
    }


def test_each_point_is_compared_with_the_last_run(space: Space) -> None:
    def run(**outcomes: str) -> Verification:
        row = verification._new(space.backend, "", Actor(name="me"))
        row.points = [point(name, outcome) for name, outcome in outcomes.items()]
        row.finished_at = row.created_at
        row.save()
        return row

    first = run(a="passed", b="failed", c="skipped")
    assert [item.change for item in verification.compare(first)] == ["", "", ""]
    second = run(a="failed", b="passed", c="skipped", d="passed")
    assert second.previous() == first
    changes = {item.point["name"]: item.change for item in verification.compare(second)}
    assert changes == {"a": "worse", "b": "better", "c": "", "d": ""}
    assert second.counts == {"passed": 2, "failed": 1, "skipped": 1}


def test_a_backend_that_does_not_open_is_reported(space: Space) -> None:
    Backend.objects.update(provider="local", settings={"socket": "/nowhere.sock"})
    backend = Backend.objects.get()
    row = verification._new(backend, "base", Actor(name="me"))
    row = async_to_sync(verification.verify)(row)
    assert (row.state, row.points) == (VerificationState.FAILED, [])
    assert "/nowhere.sock" in row.problem
    assert row.finished_at


def test_a_run_is_asked_for_once_and_runs_once(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks.run_verification, "delay", asked.append)
    row = verification.request_verification(
        backend=space.backend, template="", actor=Actor(name="me")
    )
    assert asked == [row.pk]
    assert row.template == "base"
    Backend.objects.update(provider="local", settings={"socket": "/nowhere.sock"})
    tasks.run_verification(row.pk)
    ended = Verification.objects.get(pk=row.pk).finished_at
    tasks.run_verification(row.pk)
    assert Verification.objects.get(pk=row.pk).finished_at == ended


@pytest.mark.sandbox
def test_the_command_verifies_a_real_backend(real_space: Space) -> None:
    output = io.StringIO()
    template = real_space.base_template
    call_command("verify", real_space.backend.name, template=template, json=True, stdout=output)
    report = json.loads(output.getvalue())
    assert report["state"] == "passed"
    assert [item["outcome"] for item in report["points"]] == ["passed"] * 8
    assert Verification.objects.get(pk=report["id"]).points[0]["evidence"]


def test_the_command_prints_evidence_times_and_what_changed(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify() -> str:
        output = io.StringIO()
        with contextlib.suppress(SystemExit):
            call_command("verify", space.backend_id, stdout=output)
        return output.getvalue()

    first = verify()
    assert "the first run here" in first
    assert re.search(r"^4 ok +\d+\.\d s  Tags come back", first, re.M)
    assert "    - odd characters come back as they were" in first
    account.fail_next("get", Unavailable("It hangs."))
    second = verify()
    assert re.search(
        r"^4 FAILED +\d+\.\d s \(was \d+\.\d s\)  Tags come back.*worse than before", second, re.M
    )
    assert "    It hangs." in second
    assert f"compared with {Verification.objects.order_by('pk')[0].pk}" in second


def test_a_run_that_hangs_is_ended_and_leaves_nothing(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(op: str, phase: str, sandbox_id: str) -> None:
        if op == "snapshots.create":
            await asyncio.Event().wait()

    account.intercept = hang
    monkeypatch.setattr(verification, "RUN_LIMIT_S", 0.5)
    row = verification._new(space.backend, "base", Actor(name="me"))
    row = async_to_sync(verification.verify)(row)
    assert row.state == VerificationState.FAILED
    assert "was ended after" in row.problem
    assert account.sandboxes == {}


def test_checks_have_a_queue_of_their_own(settings: Any) -> None:
    route = app.amqp.router.route({}, "console.fleet.tasks.run_verification")
    assert route["queue"].name == "checks"
    assert app.amqp.router.route({}, "skills.tasks.run_build")["queue"].name == "builds"
    assert (
        app.amqp.router.route({}, "console.fleet.tasks.check_one_backend")["queue"].name
        == "control"
    )


def test_the_command_fails_with_its_report(space: Space) -> None:
    Backend.objects.update(provider="local", settings={"socket": "/nowhere.sock"})
    output = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify", space.backend_id, stdout=output)
    assert ended.value.code == 1
    assert "/nowhere.sock" in output.getvalue()
    with pytest.raises(CommandError, match="no backend called"):
        call_command("verify", "Nowhere")


def test_field_keys_are_rotated_and_the_old_one_can_go(
    space: Space, redis: BlockingRedis, settings: Any
) -> None:
    from console import crypto

    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.FIELD_KEYS = [old]
    Backend.objects.update(secrets={"api_key": "s3cret"})
    name = f"{settings.REDIS_NAMESPACE}:session:{{a:b:c}}:token"
    redis.set(name, crypto.encrypt("traffic"))
    settings.FIELD_KEYS = [new, old]
    call_command("rotate_field_keys", stdout=io.StringIO())
    call_command("rotate_field_keys", stdout=io.StringIO())
    settings.FIELD_KEYS = [new]
    assert Backend.objects.get().secrets == {"api_key": "s3cret"}
    assert crypto.decrypt(redis.get(name).decode()) == "traffic"
    with connection.cursor() as cursor:
        cursor.execute("select secrets from fleet_backend")
        (stored,) = cursor.fetchone()
    with pytest.raises(InvalidToken):
        Fernet(old).decrypt(stored.encode())
    settings.FIELD_KEYS = [old]
    with pytest.raises(ImproperlyConfigured):
        Backend.objects.get()
