"""An address is a proxy's word only if the proxy is one of ours."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory

from console import asgi
from console.tenants.accounts import address_of
from console.tenants.lockouts import network_of


async def seen_by_the_pages(
    monkeypatch: pytest.MonkeyPatch, client: str, forwarded: str
) -> tuple[str, str]:
    """The address and the scheme that Django gets to see."""
    seen: list[dict[str, Any]] = []

    async def pages(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    monkeypatch.setattr(asgi, "pages", pages)
    scope = {
        "type": "http",
        "path": "/sign-in/",
        "scheme": "http",
        "client": (client, 4711),
        "headers": [(b"x-forwarded-for", forwarded.encode()), (b"x-forwarded-proto", b"https")],
    }

    async def nothing(*_arguments: Any) -> Any:
        raise AssertionError("not reached")

    await asgi.application(scope, nothing, nothing)  # type: ignore[arg-type]
    return seen[0]["client"][0], seen[0]["scheme"]


@pytest.mark.parametrize("proxy", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_proxy_of_this_machine_is_believed(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    assert await seen_by_the_pages(monkeypatch, proxy, "203.0.113.9") == ("203.0.113.9", "https")


async def test_a_stranger_who_says_another_address_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = await seen_by_the_pages(monkeypatch, "198.51.100.1", "203.0.113.9")

    assert seen == ("198.51.100.1", "http")


async def test_what_a_visitor_put_before_the_proxys_word_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, _scheme = await seen_by_the_pages(
        monkeypatch, "127.0.0.1", "198.51.100.77, 203.0.113.9"
    )

    assert address == "203.0.113.9"


@pytest.mark.parametrize(
    ("remote", "address", "network"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::1", "fe80::"),
        ("", None, None),
        ("unknown", None, None),
    ],
)
def test_addresses_have_one_form(remote: str, address: str | None, network: str | None) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=remote)

    assert (address_of(request), network_of(request)) == (address, network)
