"""Which of the host's DNS resolvers a sandbox is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes.sandboxd.engines.runc.network.resolvers import Resolvers

STUB = "nameserver 127.0.0.53\noptions edns0\n"


@pytest.fixture
def resolvers(tmp_path: Path):
    def of(*contents: str | None) -> Resolvers:
        files = []
        for number, content in enumerate(contents):
            files.append(tmp_path / f"resolv{number}.conf")
            if content is not None:
                files[-1].write_text(content)
        return Resolvers(tuple(files))

    return of


def test_those_of_resolv_conf_in_their_order(resolvers):
    found = resolvers("# comment\nnameserver 10.1.2.3\nsearch corp\nnameserver 203.0.113.9\n")
    assert found.addresses == ("10.1.2.3", "203.0.113.9")
    assert found.resolv_conf() == "nameserver 10.1.2.3\nnameserver 203.0.113.9\n"
    assert found.note == ""


def test_behind_the_stub_of_systemd_those_that_it_asks(resolvers):
    assert resolvers(STUB, "nameserver 10.1.2.3\n").addresses == ("10.1.2.3",)


@pytest.mark.parametrize(
    "content", [STUB, "nameserver ::1\n", "nameserver 169.254.169.254\n", "nameserver\n", None]
)
def test_where_none_can_be_reached_the_host_is_told_why(resolvers, content):
    found = resolvers(content, None)
    assert found.addresses == ()
    assert "add an IPv4 resolver" in found.note
    assert "nameserver" not in found.resolv_conf()
