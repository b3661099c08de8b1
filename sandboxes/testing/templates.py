"""Base images, apart from snapshots."""

from __future__ import annotations

import pytest

from sandboxes.client import SandboxClient, TemplateCatalog
from sandboxes.errors import NotFound
from sandboxes.testing.base import Contract, SandboxFactory, needs, unique
from sandboxes.types import TemplateStatus

__all__ = ["TemplateContract"]


def catalog_of(client: SandboxClient) -> TemplateCatalog:
    assert client.templates is not None
    return client.templates


class TemplateContract(Contract):
    stands_on = ("templates",)

    async def test_the_template_in_use_is_listed(
        self, client: SandboxClient, template: str
    ) -> None:
        listed = [info async for info in catalog_of(client).list()]
        match = [info for info in listed if template == info.id or template in info.names]
        assert match
        assert match[0].status is TemplateStatus.READY

    async def test_get_by_id_and_by_name(self, client: SandboxClient, template: str) -> None:
        info = await catalog_of(client).get(template)
        assert await catalog_of(client).get(info.id) == info
        for name in info.names:
            assert name in (await catalog_of(client).get(name)).names

    async def test_an_unknown_template_is_not_found(self, client: SandboxClient) -> None:
        with pytest.raises(NotFound):
            await catalog_of(client).get("no-such-template-anywhere")

    async def test_one_that_is_there_is_ready_at_once(
        self, client: SandboxClient, template: str
    ) -> None:
        build = await catalog_of(client).ensure(template)
        assert build.status is TemplateStatus.READY
        assert build.template_id == (await catalog_of(client).get(template)).id
        assert await catalog_of(client).build_status(template) == build

    async def test_of_an_unknown_one_there_is_no_build(self, client: SandboxClient) -> None:
        with pytest.raises(NotFound):
            await catalog_of(client).build_status("no-such-template-anywhere")

    async def test_deleting_a_missing_one_is_done(self, client: SandboxClient) -> None:
        await catalog_of(client).delete("no-such-template-anywhere")

    @needs("snapshots")
    async def test_snapshots_are_not_among_them(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        assert client.snapshots is not None
        box = await sandbox()
        taken = await client.snapshots.create(box.id, name=f"contract-{unique()}")
        try:
            assert taken.id not in [info.id async for info in catalog_of(client).list()]
        finally:
            await client.snapshots.delete(taken.id)
