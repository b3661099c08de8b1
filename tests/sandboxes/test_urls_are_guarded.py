"""Which URLs a backend may have: judged when saved, and again on every connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from sandboxes.errors import InvalidRequest, Unavailable
from sandboxes.urlguard import UrlGuard, UrlRefused, address_problem, check_url

NEVER = [
    "0.0.0.0",  # noqa: S104
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "240.0.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "::169.254.169.254",
]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:c0a8:101::1",
]
PUBLIC = [
    "203.0.113.10",
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("allow_private", [False, True])
def test_some_addresses_are_never_called(address: str, allow_private: bool) -> None:
    assert address_problem(address, allow_private=allow_private)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_leave(address: str) -> None:
    problem = address_problem(address)
    assert problem
    assert "allow private addresses" in problem
    assert address_problem(address, allow_private=True) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert address_problem(address) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:3000",
        "ftp://example.com",
        "file:///etc/passwd",
        "gopher://example.com",
        "//example.com",
        "http://",
        "http://:80",
        "http:///path",
        "https://user@example.com",
        "https://user:word@example.com",
        "https://example.com@evil.example",
        "https://printer.local",
        "https://printer.LOCAL.",
        "https://local",
        "http://localhost:3000",
        "http://api.localhost",
        "http://127.0.0.1",
        "http://127.1",
        "http://2130706433",
        "http://0x7f.0.0.1",
        "http://0177.0.0.1",
        "http://[::1]:3000",
        "http://[::ffff:169.254.169.254]",
        "http://169.254.169.254/latest/meta-data",
        "http://exa mple.com",
        "http://example.com\\@evil.example",
        "http://example.com:99999",
        "http://[broken",
    ],
)
def test_bad_urls_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        check_url(url)
    assert caught.value.kind == "invalid_request"
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "url",
    [
        "https://203.0.113.10",
        "https://cube.example.com:8443/prefix",
        "http://[2606:4700::1111]:3000",
        "https://xn--fiqs8s.example",
        "HTTPS://Example.COM",
    ],
)
def test_good_urls_pass(url: str) -> None:
    assert check_url(url).hostname


@pytest.mark.parametrize("url", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]"])
def test_private_urls_need_leave(url: str) -> None:
    assert check_url(url, allow_private=True)
    with pytest.raises(UrlRefused):
        check_url(url)


def answering(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def test_every_address_of_a_name_is_judged() -> None:
    await UrlGuard(resolve=answering("203.0.113.1", "2606:4700::1")).check("https://api.example")
    for bad in ("10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"):
        with pytest.raises(UrlRefused) as caught:
            await UrlGuard(resolve=answering("203.0.113.1", bad)).check("https://api.example")
        assert bad in str(caught.value)


async def test_a_name_without_an_address_is_refused_at_save_and_transient_at_dial() -> None:
    async def nothing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    for resolve in (nothing, answering()):
        guard = UrlGuard(resolve=resolve)
        with pytest.raises(InvalidRequest, match="has no address"):
            await guard.check("https://api.example")
        with pytest.raises(Unavailable):
            await guard.addresses("api.example", 443)


async def test_the_systems_resolver_is_judged_too() -> None:
    with pytest.raises(UrlRefused):
        await UrlGuard().addresses("localhost", 80)
    assert await UrlGuard(allow_private=True).addresses("localhost", 80)
