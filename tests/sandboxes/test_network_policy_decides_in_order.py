"""The order of rules, for any policy and any address: link-local, allow, deny, private, switch."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from sandboxes.network import ALWAYS_DENIED, LINK_LOCAL, NetworkPolicy, Verdict

addresses = st.one_of(
    st.ip_addresses(v=4),
    # Often near the fixed ranges and near each other, where rules meet.
    st.builds(
        lambda block, offset: block[offset % block.num_addresses],
        st.sampled_from(ALWAYS_DENIED),
        st.integers(0, 1 << 24),
    ),
    st.builds(lambda last: ipaddress.IPv4Address(f"198.51.100.{last}"), st.integers(0, 7)),
)
networks = st.builds(
    lambda address, prefix: str(ipaddress.IPv4Network(f"{address}/{prefix}", strict=False)),
    addresses,
    st.sampled_from([0, 4, 8, 10, 12, 16, 24, 29, 30, 31, 32]),
)
lists = st.lists(networks, max_size=4, unique=True)
policies = st.builds(
    lambda outbound, allow, deny: NetworkPolicy.parse(
        outbound=outbound, inbound=False, allow=allow, deny=deny
    ),
    st.booleans(),
    lists,
    lists,
)


def covered(address: ipaddress.IPv4Address, blocks: tuple[str, ...]) -> bool:
    return any(address in ipaddress.ip_network(block) for block in blocks)


@given(policies, addresses)
def test_the_first_rule_that_speaks_decides(policy, address):
    decision = policy.decide_address(str(address))
    if address in LINK_LOCAL:
        expected = (Verdict.DENIED, {"built-in"})
    elif covered(address, policy.allow):
        expected = (Verdict.ALLOWED, set(policy.allow))
    elif covered(address, policy.deny):
        expected = (Verdict.DENIED, set(policy.deny))
    elif any(address in block for block in ALWAYS_DENIED):
        expected = (Verdict.DENIED, {"built-in"})
    else:
        expected = (Verdict.ALLOWED if policy.outbound else Verdict.DENIED, {"outbound"})
    assert decision.verdict is expected[0]
    assert decision.rule in expected[1]


@given(policies, addresses)
def test_the_deciding_entry_covers_the_address(policy, address):
    rule = policy.decide_address(str(address)).rule
    if "/" in rule:
        assert address in ipaddress.ip_network(rule)


@given(policies, addresses)
def test_closed_by_default_leaves_only_the_allow_list(policy, address):
    if policy.closed_by_default and not covered(address, policy.allow):
        assert policy.decide_address(str(address)).verdict is Verdict.DENIED


@given(policies, addresses)
def test_a_host_given_as_an_address_is_judged_as_one(policy, address):
    assert policy.decide(str(address)) == policy.decide_address(str(address))


@given(policies, st.ip_addresses(v=6))
def test_ipv6_is_never_allowed(policy, address):
    assert policy.decide(str(address)).verdict is Verdict.DENIED


@given(policies, addresses)
def test_an_address_in_ipv6_clothes_is_never_allowed(policy, address):
    assert policy.decide(f"::ffff:{address}").verdict is Verdict.DENIED


@given(policies, st.lists(addresses, min_size=1, max_size=3))
def test_an_unlisted_name_is_no_better_than_its_addresses(policy, found):
    decision = policy.decide("host.example.com", resolve=lambda _: [str(a) for a in found])
    verdicts = {policy.decide_address(str(address)).verdict for address in found}
    if decision.verdict is Verdict.ALLOWED:
        assert verdicts == {Verdict.ALLOWED}
    if verdicts == {Verdict.DENIED}:
        assert decision.verdict is Verdict.DENIED
