"""Every failure has its kind, and a sentence for people."""

from __future__ import annotations

import pytest

from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.testing.base import Contract, SandboxFactory, files_of, needs, text_of
from sandboxes.types import Sandbox

__all__ = ["ErrorContract"]

UNKNOWN_ID = "a0000000000000000000"


def assert_speaks(error: SandboxError, client: SandboxClient) -> None:
    text = str(error)
    assert len(text) > 15
    assert text.endswith((".", "!"))
    assert not text[0].islower()
    assert "Traceback" not in text
    assert error.provider == client.provider
    assert error.op


class ErrorContract(Contract):
    async def test_an_unknown_sandbox_is_not_found(self, client: SandboxClient) -> None:
        for call in (client.get, client.connect, client.delete):
            with pytest.raises(NotFound) as caught:
                await call(UNKNOWN_ID)
            assert_speaks(caught.value, client)
            assert caught.value.gone

    @pytest.mark.parametrize("odd", ["", "..", "../v2/sandboxes", "a/b", "A B", "x?y=1", "%2e%2e"])
    async def test_what_cannot_be_an_id_is_refused(self, client: SandboxClient, odd: str) -> None:
        for call in (client.get, client.connect, client.delete):
            with pytest.raises(SandboxError) as caught:
                await call(odd)
            assert caught.value.kind in ("invalid_request", "not_found")
            assert_speaks(caught.value, client)

    async def test_an_unknown_template_is_an_invalid_request(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        with pytest.raises(InvalidRequest) as caught:
            await sandbox(template="no-such-template-anywhere")
        assert_speaks(caught.value, client)
        assert not caught.value.gone

    async def test_a_command_in_a_deleted_sandbox_is_not_found(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound) as caught:
            await text_of(client, box, "true")
        assert_speaks(caught.value, client)

    @needs("files")
    async def test_a_file_of_a_deleted_sandbox_is_not_found(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await files_of(client).stat(box, "/tmp")
        with pytest.raises(NotFound):
            await files_of(client).write(box, "/tmp/x", b"x")
        with pytest.raises(NotFound):
            async with files_of(client).read(box, "/etc/passwd"):
                pass

    @needs("files")
    async def test_a_missing_file_speaks(self, client: SandboxClient, box: Sandbox) -> None:
        with pytest.raises(NotFound) as caught:
            await files_of(client).stat(box, "/tmp/missing.txt")
        assert_speaks(caught.value, client)
        assert "/tmp/missing.txt" in str(caught.value)

    @needs("pause")
    async def test_pausing_an_unknown_sandbox_is_not_found(self, client: SandboxClient) -> None:
        assert client.pausing is not None
        with pytest.raises(NotFound):
            await client.pausing.pause(UNKNOWN_ID)

    async def test_a_handle_with_a_wrong_token_opens_nothing(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        if box.access_token is None:
            pytest.skip("this backend's data plane has no tokens of its own")
        forged = Sandbox(id=box.id, template_id=box.template_id, access_token=UNKNOWN_ID)
        with pytest.raises(SandboxError) as caught:
            await text_of(client, forged, "true")
        assert caught.value.kind == "authentication"
        assert not caught.value.gone

    async def test_secrets_are_not_shown(self, client: SandboxClient, box: Sandbox) -> None:
        for secret in (box.access_token, box.traffic_token):
            assert secret is None or secret not in repr(box)
