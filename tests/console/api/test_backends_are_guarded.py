"""A backend over REST: its addresses are judged before it is kept, its key is never told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from console.fleet.models import Backend
from console.tenants.access import Action
from tests.console.api.conftest import IssueKey
from tests.console.cast import World

CUBE = {"api_url": "https://203.0.113.10", "proxy_url": "https://203.0.113.11", "api_key": "s3cret"}


@pytest.fixture
def connect(world: World, make_key: IssueKey) -> Any:
    client = Client(headers={"X-API-Key": make_key(world.tenant, list(Action))})

    def post(**settings: Any) -> Any:
        body = {"name": "Cluster", "provider": "cube", "settings": {**CUBE, **settings}}
        return client.post(
            f"/api/v1/tenants/{world.tenant.pk}/backends",
            json.dumps(body),
            content_type="application/json",
        )

    return post


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254", "http://10.0.0.8", "http://localhost:3000", "ftp://x.example"]
)
def test_an_address_that_may_not_be_called_is_refused(connect: Any, url: str) -> None:
    for name in ("api_url", "proxy_url"):
        answer = connect(**{name: url})
        assert answer.status_code in (400, 422)
        assert answer.json()["error"]["kind"] == "invalid_request"
    assert not Backend.objects.filter(name="Cluster").exists()


def test_a_good_one_is_kept_and_its_key_is_not_told(connect: Any) -> None:
    answer = connect()
    assert answer.status_code == 201
    assert "s3cret" not in answer.content.decode()
    assert Backend.objects.get(name="Cluster").secrets == {"api_key": "s3cret"}
