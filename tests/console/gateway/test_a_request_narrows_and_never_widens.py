"""The space's policy and a request's wish: what both allow, and a reason for what only the wish does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.gateway.narrowing import Forbidden, narrow
from sandboxes.errors import InvalidRequest
from sandboxes.network import ANYWHERE, CLOSED, OPEN, NetworkPolicy, Verdict

LISTED = NetworkPolicy.parse(
    outbound=False, inbound=False, allow=["*.example.com", "pypi.org", "203.0.113.0/24"]
)
DENYING = NetworkPolicy.parse(outbound=True, inbound=True, deny=["198.51.100.0/24"])


@pytest.mark.parametrize("policy", [OPEN, CLOSED, LISTED, DENYING])
def test_no_wish_is_the_space_s_policy(policy: NetworkPolicy) -> None:
    assert narrow(policy, outbound=None, inbound=None) == policy


def test_open_can_be_closed_and_closed_not_opened() -> None:
    assert narrow(OPEN, outbound=False, inbound=None).closed_by_default
    assert narrow(LISTED, outbound=False, inbound=None).allow == ()
    with pytest.raises(Forbidden, match="outbound closed"):
        narrow(LISTED, outbound=True, inbound=None)
    with pytest.raises(Forbidden, match="inbound closed"):
        narrow(OPEN, outbound=None, inbound=True)
    assert narrow(DENYING, outbound=None, inbound=False).inbound is False


@pytest.mark.parametrize(
    "entry", ["evil.test", "*.evil.org", "*.pypi.org", "198.51.100.7", "203.0.112.0/23"]
)
def test_what_the_space_does_not_list_is_refused_by_name(entry: str) -> None:
    with pytest.raises(Forbidden) as refused:
        narrow(LISTED, outbound=None, inbound=None, allow=(entry,), deny=(ANYWHERE,))
    assert entry in str(refused.value)


def test_a_part_of_the_space_s_list_may_be_asked_for() -> None:
    asked = ("a.example.com", "203.0.113.8/30")
    policy = narrow(LISTED, outbound=False, inbound=None, allow=asked)
    assert policy == NetworkPolicy.parse(outbound=False, inbound=False, allow=asked)


def test_an_allowance_does_not_reach_past_the_space_s_denial() -> None:
    for entry in ("198.51.100.9", "198.51.0.0/16", "10.0.0.1", "169.254.169.254", "some.name"):
        with pytest.raises(Forbidden):
            narrow(DENYING, outbound=False, inbound=None, allow=(entry,))
    assert narrow(DENYING, outbound=False, inbound=None, allow=("1.1.1.1",)).deny == DENYING.deny


def test_bad_entries_are_invalid() -> None:
    with pytest.raises(InvalidRequest):
        narrow(OPEN, outbound=None, inbound=None, deny=("example.com",))


BLOCKS = st.sampled_from(
    ["0.0.0.0/0", "8.0.0.0/8", "8.8.0.0/16", "8.8.8.8/32", "9.0.0.0/8", "10.0.0.0/8", "10.1.2.3/32"]
)
LISTS = st.lists(BLOCKS, unique=True, max_size=3)
ADDRESSES = ["8.8.8.8", "8.8.9.9", "8.1.1.1", "9.9.9.9", "10.1.2.3", "10.2.2.2", "1.1.1.1"]


@given(st.booleans(), LISTS, LISTS, st.sampled_from([None, True, False]), LISTS, LISTS)
def test_whatever_is_reached_both_allow(
    outbound: bool,
    allow: list[str],
    deny: list[str],
    wish: bool | None,
    wish_allow: list[str],
    wish_deny: list[str],
) -> None:
    policy = NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow, deny=deny)
    try:
        result = narrow(
            policy, outbound=wish, inbound=None, allow=tuple(wish_allow), deny=tuple(wish_deny)
        )
    except Forbidden:
        return
    asked = NetworkPolicy.parse(
        outbound=wish is not False, inbound=False, allow=wish_allow, deny=wish_deny
    )
    for address in ADDRESSES:
        if result.decide_address(address).verdict is Verdict.ALLOWED:
            assert policy.decide_address(address).verdict is Verdict.ALLOWED, address
            built_in = asked.decide_address(address).rule == "built-in"
            assert built_in or asked.decide_address(address).verdict is Verdict.ALLOWED, address
