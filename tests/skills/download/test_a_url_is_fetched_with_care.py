"""A package from a URL: https only at every hop, no private address, bounded size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from sandboxes.wire.transport import Dial
from skills.download import download
from skills.package import PackageRefused
from tests.sandboxes.wire import servers

URL = "https://files.example.test/skill.zip"


class ScriptedDial(Dial):
    """A dial whose server is a function; the guard of a real one is tested with the transport."""

    def transport(self, *, tls: bool) -> httpx.AsyncBaseTransport:
        assert tls
        return servers.Scripted(ScriptedDial.handler)

    handler: Callable[[httpx.Request], httpx.Response]


def served_by(monkeypatch: pytest.MonkeyPatch, handler: object) -> Dial:
    monkeypatch.setattr(ScriptedDial, "handler", staticmethod(handler), raising=False)
    return ScriptedDial()


async def refusal(url: str, **options: object) -> str:
    with pytest.raises(PackageRefused) as caught:
        await download(url, **options)  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")
    return caught.value.code


async def test_the_bytes_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = served_by(monkeypatch, lambda _request: httpx.Response(200, content=b"x" * 3_000_000))

    with await download(URL, dial=dial) as file:
        assert file.read() == b"x" * 3_000_000


@pytest.mark.parametrize(
    "url",
    [
        "http://files.example.test/skill.zip",
        "ftp://files.example.test/skill.zip",
        "file:///etc/passwd",
        "https://",
        "https://user:secret@files.example.test/",
        "https://127.0.0.1/skill.zip",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/x",
        "https://10.0.0.1/x",
        "no url",
    ],
)
async def test_what_may_not_be_called_is_refused_before_any_byte_leaves(url: str) -> None:
    assert await refusal(url) in ("url_refused", "url_not_https", "url_failed")


async def test_a_redirect_to_plain_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = served_by(
        monkeypatch,
        lambda request: httpx.Response(302, headers={"location": "http://files.example.test/a"}),
    )

    assert await refusal(URL, dial=dial) == "url_not_https"


async def test_endless_redirects_end(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = served_by(monkeypatch, lambda request: httpx.Response(302, headers={"location": URL}))

    assert await refusal(URL, dial=dial) == "url_failed"


async def test_too_many_bytes_are_refused_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = served_by(monkeypatch, lambda _request: httpx.Response(200, content=b"x" * 5000))

    assert await refusal(URL, dial=dial, max_bytes=4999) == "url_too_large"


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_another_status_is_named(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    dial = served_by(monkeypatch, lambda _request: httpx.Response(status, content=b"no"))

    assert await refusal(URL, dial=dial) == "url_status"


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    dial = served_by(monkeypatch, never)

    assert await refusal(URL, dial=dial, timeout_s=0.05) == "url_timeout"
