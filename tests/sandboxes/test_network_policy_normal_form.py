"""Parsing: one normal form for equal policies, and a sentence for every bad entry."""

from __future__ import annotations

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.network import NetworkPolicy, PolicyInvalid, entry_problem

letters = st.text("abcxyz019", min_size=1, max_size=6)
labels = st.one_of(letters, st.builds("{}-{}".format, letters, letters))
domains = st.builds(
    lambda wild, parts: ("*." if wild else "") + ".".join(parts),
    st.booleans(),
    st.lists(labels, min_size=2, max_size=4).filter(lambda parts: not parts[-1].isdigit()),
)
blocks = st.builds(
    lambda address, prefix: f"{address}/{prefix}", st.ip_addresses(v=4), st.integers(0, 32)
)


def closed(allow: list[str], deny: list[str] = []) -> NetworkPolicy:  # noqa: B006
    return NetworkPolicy.parse(outbound=False, inbound=False, allow=allow, deny=deny)


def unique(entries: list[str]) -> list[str]:
    """Those that do not mean the same as one before."""
    seen: dict[str, str] = {}
    for entry in entries:
        key = str(ipaddress.IPv4Network(entry, strict=False)) if "/" in entry else entry
        seen.setdefault(key, entry)
    return list(seen.values())


entry_lists = st.lists(st.one_of(domains, blocks), max_size=8).map(unique)


@given(entry_lists, st.randoms())
def test_order_case_space_and_a_trailing_dot_do_not_matter(entries, rng: random.Random):
    shuffled = list(entries)
    rng.shuffle(shuffled)
    dressed = [
        f"  {entry.upper()}{'' if '/' in entry else rng.choice(['', '.'])} " for entry in shuffled
    ]
    assert closed(dressed) == closed(entries)


@given(entry_lists)
def test_the_normal_form_is_its_own(entries):
    policy = closed(entries)
    again = closed(list(policy.allow))
    assert again == policy
    assert list(policy.allow) == sorted(policy.allow)
    assert set(policy.allowed_networks) | set(policy.allowed_domains) == set(policy.allow)


@given(blocks)
def test_host_bits_are_cleared(block):
    (entry,) = closed([block]).allow
    assert ipaddress.ip_address(block.partition("/")[0]) in ipaddress.IPv4Network(entry)
    assert entry == str(ipaddress.IPv4Network(entry))


@given(st.text(max_size=80))
def test_any_text_is_taken_or_refused_with_a_sentence(text):
    problem = entry_problem(text, domains=True)
    if problem is None:
        (entry,) = closed([text]).allow
        assert entry_problem(entry, domains=True) is None
    else:
        assert len(problem) > 10
        with pytest.raises(PolicyInvalid):
            closed([text])


def test_every_bad_entry_is_named_not_only_the_first():
    with pytest.raises(PolicyInvalid) as caught:
        closed(["fine.example.com", "", "http://x.example", "1.2.3.4/99"], ["name.example.com"])
    places = [(error.list, error.index) for error in caught.value.errors]
    assert places == [("allow", 1), ("allow", 2), ("allow", 3), ("deny", 0)]


def test_a_repeated_entry_is_refused_in_whatever_form():
    with pytest.raises(PolicyInvalid, match="already in the list"):
        closed(["10.1.2.3/8", "10.0.0.0/8"])


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "*.com.",
        "a.*.com",
        "**.example.com",
        "localhost",
        "-a.example.com",
        "a-.example.com",
        "a..example.com",
        "a_b.example.com",
        "exämple.com",
        "example.com:443",
        "::1",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "a" * 64 + ".com",
        ".".join(["a" * 60] * 5),
    ],
)
def test_what_is_no_entry(entry):
    assert entry_problem(entry, domains=True) is not None


@pytest.mark.parametrize("deny", [(), ("198.51.100.0/24",)])
def test_a_domain_needs_a_closed_default(deny):
    with pytest.raises(PolicyInvalid, match="switch outbound off first"):
        NetworkPolicy.parse(outbound=True, inbound=False, allow=["a.example.com"], deny=deny)
    NetworkPolicy.parse(outbound=True, inbound=False, allow=["a.example.com"], deny=["0.0.0.0/0"])


def test_a_list_has_an_end():
    entries = [f"10.{i // 250}.{i % 250}.1" for i in range(1025)]
    with pytest.raises(PolicyInvalid, match="at most 1024"):
        closed(entries)
    assert len(closed(entries[:1024]).allow) == 1024


@given(domains, labels)
def test_a_wildcard_means_subdomains_only(domain, label):
    bare = domain.removeprefix("*.")
    wild = closed([f"*.{bare}"])
    assert wild.domain_allowed(bare) is None
    assert wild.domain_allowed(f"{label}.{bare}") == f"*.{bare}"
    assert wild.domain_allowed(f"{label}.{label}.{bare.upper()}.") == f"*.{bare}"
    assert wild.domain_allowed(f"{label}{bare}") is None
    assert wild.domain_allowed(f"{label}.{bare}.evil") is None


@given(domains.filter(lambda domain: not domain.startswith("*")), labels)
def test_a_plain_name_means_itself_only(domain, label):
    policy = closed([domain])
    assert policy.domain_allowed(domain.upper() + ".") == domain
    assert policy.domain_allowed(f"{label}.{domain}") is None
