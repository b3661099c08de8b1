"""Entries of a policy that have no effect, or a larger one than their author may think, are named."""

from __future__ import annotations

import time

import pytest

from sandboxes.network import NetworkPolicy
from sandboxes.network_advice import advice


@pytest.mark.parametrize(
    ("outbound", "allow", "deny", "expected"),
    [
        (False, ["*.pypi.org", "files.pypi.org"], [], [("files.pypi.org", "covered")]),
        (False, ["203.0.113.0/24", "203.0.113.7"], [], [("203.0.113.7/32", "covered")]),
        (False, ["10.1.2.0/24"], [], [("10.1.2.0/24", "opens_private")]),
        (False, ["169.254.169.254"], [], [("169.254.169.254/32", "link_local")]),
        (True, ["198.51.100.1"], [], [("198.51.100.1/32", "needless_allow")]),
        (True, ["198.51.100.1"], ["198.51.100.0/24"], []),
        (True, ["198.51.100.0/24"], ["198.51.100.1"], [("198.51.100.1/32", "deny_beaten")]),
        (True, [], ["198.51.100.0/24", "198.51.100.1"], [("198.51.100.1/32", "covered")]),
        (True, [], ["10.0.0.0/8"], [("10.0.0.0/8", "built_in_deny")]),
        (False, ["pypi.org"], ["198.51.100.1"], [("198.51.100.1/32", "needless_deny")]),
        (False, ["pypi.org"], [], []),
        (True, [], ["198.51.100.1"], []),
    ],
)
def test_entries_without_their_expected_effect_are_named(
    outbound: bool, allow: list[str], deny: list[str], expected: list[tuple[str, str]]
) -> None:
    policy = NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow, deny=deny)

    found = [(item.entry, item.code) for item in advice(policy)]

    assert found == expected
    assert all(item.sentence.startswith(item.entry) for item in advice(policy))


def test_whole_lists_are_judged_at_the_speed_of_typing() -> None:
    """Editors ask at every key; comparing each entry with each took a minute and a half."""
    policy = NetworkPolicy.parse(
        outbound=False,
        inbound=False,
        allow=[f"198.18.{n // 250}.{n % 250}" for n in range(1000)],
        deny=[f"198.51.{n // 250}.{n % 250}" for n in range(1000)],
    )

    start = time.perf_counter()
    found = advice(policy)

    assert len(found) == 1000
    assert time.perf_counter() - start < 2
