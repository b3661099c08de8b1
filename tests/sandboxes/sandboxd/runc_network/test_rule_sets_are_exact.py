"""What is given to nft, where its text alone decides: no overlap, no foreign table, no injection."""

from __future__ import annotations

from sandboxes.network import CLOSED, OPEN, NetworkPolicy
from sandboxes.sandboxd.engines.runc.network.rules import (
    host_ruleset,
    needs_link,
    needs_proxy,
    sandbox_ruleset,
)


def parse(outbound: bool, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> NetworkPolicy:
    return NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow, deny=deny)


def test_what_each_policy_needs():
    needs = {
        policy: (needs_link(policy), needs_proxy(policy))
        for policy in (
            OPEN,
            CLOSED,
            parse(False, ("198.51.100.1",)),
            parse(False, ("a.example.com",)),
            parse(True, ("a.example.com", "198.51.100.1"), ("0.0.0.0/0",)),
            parse(True, (), ("0.0.0.0/0",)),
        )
    }
    assert list(needs.values()) == [
        (True, False),
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, False),
    ]


def test_overlapping_entries_become_one_interval():
    rules = sandbox_ruleset(
        parse(True, (), ("198.51.100.0/24", "198.51.100.7", "198.51.0.0/16")), ()
    )
    assert "ip daddr { 198.51.0.0/16 } goto refuse" in rules
    assert "198.51.100" not in rules


def test_no_resolver_means_no_rule_for_one():
    assert "dport 53" not in sandbox_ruleset(OPEN, ())
    assert "dport 53" not in sandbox_ruleset(parse(True, (), ("0.0.0.0/0",)), ("10.0.0.1",))
    assert "dport 53" in sandbox_ruleset(OPEN, ("10.0.0.1",))


def test_the_host_rule_set_speaks_only_of_its_own_table_and_links():
    rules = host_ruleset("skillyard_ab", links="syab", pool="10.213.0.0/16", resolvers=())
    assert {line.split()[-1] for line in rules.splitlines() if line.startswith("flush")} == {
        "skillyard_ab"
    }
    for line in rules.splitlines():
        if "goto refuse" in line or "accept" in line.split()[-1:]:
            assert '"syab*"' in line
