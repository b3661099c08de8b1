"""A live log breaks off now and then, and goes on only for whoever may still see it."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import AsyncClient
from django.urls import reverse

from console.web.builds import views
from skills.models import Build, BuildLogLine, BuildState
from tests.console.cast import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def build(world: World) -> Build:
    Build.objects.filter(pk=world.build.pk).update(state=BuildState.RUNNING, finished_at=None)
    BuildLogLine.objects.bulk_create(
        BuildLogLine(build=world.build, step="install", stream="stdout", text=f"line {n}\n")
        for n in range(3)
    )
    return Build.objects.get(pk=world.build.pk)


async def heard(client: AsyncClient, build: Build, **headers: str) -> tuple[Any, str]:
    response = await client.get(reverse("web:build-log-events", args=[build.pk]), headers=headers)
    if not isinstance(response, StreamingHttpResponse):
        return response, ""
    return response, "".join([part.decode() async for part in response])


async def test_it_resumes_where_it_broke_off(
    world: World, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "ASKED_EVERY_S", 0.0)
    client = AsyncClient()
    await client.aforce_login(world.people["viewer"])
    seen, last = "", ""
    for _ in range(3):
        _, text = await heard(client, build, **({"Last-Event-ID": last} if last else {}))
        assert text.startswith("retry: ")
        assert "event: end" not in text
        last = text.rpartition("id: ")[2].partition("\n")[0]
        seen += text
    assert [f"line {n}" in seen for n in range(3)] == [True] * 3
    assert seen.count("event: line") == 3


async def test_nobody_reads_on_whose_sign_in_has_ended(
    world: World, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "ASKED_EVERY_S", 0.0)
    client = AsyncClient()
    await client.aforce_login(world.people["viewer"])
    response, text = await heard(client, build)
    assert response.status_code == 200
    assert "line 0" in text
    await client.alogout()
    response, text = await heard(client, build)
    assert response.status_code != 200
    assert text == ""
