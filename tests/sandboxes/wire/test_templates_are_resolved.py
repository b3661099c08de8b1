"""A template is found by id, by name, or, if it is another account's, by its alias; else the mend is told."""

from __future__ import annotations

import httpx
import pytest

from sandboxes.errors import NotFound, Unsupported
from sandboxes.types import TemplateStatus
from tests.sandboxes.wire import servers
from tests.sandboxes.wire.servers import refusal

OWN = {"templateID": "t1", "names": ["team/data"], "aliases": ["data"], "buildStatus": "ready"}
BUILDING = {"templateID": "t2", "names": ["next"], "buildStatus": "building"}


def server(request: httpx.Request) -> httpx.Response:
    path = request.url.path
    if path == "/templates":
        return httpx.Response(200, json=[OWN, BUILDING])
    if path == "/snapshots":
        return httpx.Response(200, json=[])
    if path == "/templates/aliases/base":
        return refusal(403, "alias 'base' belongs to another team")
    if path == "/templates/aliases/shared":
        return httpx.Response(200, json={"templateID": "t9", "public": True})
    return refusal(404, "not found")


@pytest.mark.parametrize(
    ("name", "template_id", "status"),
    [
        ("t1", "t1", TemplateStatus.READY),
        ("team/data", "t1", TemplateStatus.READY),
        ("next", "", TemplateStatus.BUILDING),
        ("base", "base", TemplateStatus.READY),
        ("shared", "t9", TemplateStatus.READY),
    ],
)
async def test_it_is_found(name: str, template_id: str, status: TemplateStatus) -> None:
    async with servers.client(server) as client:
        assert client.templates is not None
        build = await client.templates.ensure(name)
    assert (build.status, build.template_id) == (status, template_id)


async def test_a_missing_one_is_told_with_what_there_is() -> None:
    async with servers.client(server) as client:
        assert client.templates is not None
        with pytest.raises(NotFound, match="there are: next, team/data; build it there"):
            await client.templates.ensure("nowhere")


async def test_building_is_the_providers() -> None:
    async with servers.client(server) as client:
        assert client.templates is not None
        assert not client.capabilities.template_builds
        with pytest.raises(Unsupported, match="command line or SDK"):
            await client.templates.ensure("team/data", rebuild=True)
