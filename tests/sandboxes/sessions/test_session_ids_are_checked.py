from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.errors import InvalidRequest
from sandboxes.sessions import SessionKey
from sandboxes.sessions.keys import KeyNames


@pytest.mark.parametrize(
    "bad", ["", "   ", "a{b", "a}b", "a\x00b", "a\nb", "a\x7f", "\ud800", "x" * 257]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_id_is_an_invalid_request(bad: str, place: int) -> None:
    ids = ["tenant", "space", "session"]
    ids[place] = bad
    with pytest.raises(InvalidRequest, match=r"id (is|holds)"):
        SessionKey(*ids)


def test_an_id_of_256_characters_in_any_script_is_fine() -> None:
    assert SessionKey("会" * 256, "пространство", "👩‍🚀 chat:1/2%3A*?[]").session


ids = st.text(min_size=1, max_size=20).filter(lambda text: _valid(text))


def _valid(text: str) -> bool:
    try:
        SessionKey(text, "s", "s")
    except InvalidRequest:
        return False
    return True


@given(ids, ids, ids)
def test_a_binding_name_leads_back_to_its_session(tenant: str, space: str, session: str) -> None:
    key = SessionKey(tenant, space, session)
    names = KeyNames("ns")
    assert names.session_of(names.of(key).binding) == key


@given(ids, ids, ids, ids, ids, ids)
def test_two_sessions_never_share_a_key(a: str, b: str, c: str, d: str, e: str, f: str) -> None:
    names = KeyNames("ns")
    one, other = SessionKey(a, b, c), SessionKey(d, e, f)
    assert (names.of(one) == names.of(other)) == (one == other)


def test_a_colon_does_not_move_between_ids() -> None:
    names = KeyNames("ns")
    assert names.of(SessionKey("a:b", "c", "d")) != names.of(SessionKey("a", "b:c", "d"))


def test_all_keys_of_a_session_lie_in_one_cluster_slot() -> None:
    from redis.cluster import key_slot

    keys = KeyNames("ns").of(SessionKey("t", "s", "chat {1}".replace("{", "<").replace("}", ">")))
    slots = {
        key_slot(getattr(keys, part).encode())
        for part in ("lock", "binding", "token", "stale", "turn")
    }
    assert len(slots) == 1
