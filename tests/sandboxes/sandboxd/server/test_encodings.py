"""The metadata filter, signatures and the user selector, against values seen on the wire."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.wire.encoding import (
    decode_metadata_filter,
    decode_user_selector,
    encode_metadata_filter,
    encode_user_selector,
    sign_file_url,
    signature_matches,
)


def test_the_filter_is_encoded_as_the_official_sdk_was_seen_to_do() -> None:
    value = encode_metadata_filter({"a b": "x/y", "k": "v&w"})
    assert quote(value) == "a%252520b%3Dx%252Fy%26k%3Dv%252526w"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_any_metadata_survives_its_encoding(metadata: dict[str, str]) -> None:
    assert decode_metadata_filter(encode_metadata_filter(metadata)) == metadata


@pytest.mark.parametrize("value", ["user=abc&app=prod", "user%3Dabc%26app%3Dprod"])
def test_fewer_layers_are_understood(value: str) -> None:
    assert decode_metadata_filter(value) == {"user": "abc", "app": "prod"}


@pytest.mark.parametrize("value", ["x", "a=b=c", "=b"])
def test_a_filter_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        decode_metadata_filter(value)


def test_signatures_follow_the_protocol() -> None:
    digest = hashlib.sha256(b"/a b.txt:read:root:tok:1700000000").digest()
    expected = "v1_" + base64.b64encode(digest).decode().rstrip("=")
    signature = sign_file_url(
        path="/a b.txt", operation="read", user="root", token="tok", expires_at=1700000000
    )
    assert signature == expected
    same = {"path": "/a b.txt", "user": "root", "token": "tok", "expires_at": 1700000000}
    assert signature_matches(signature, operation="read", **same)
    assert not signature_matches(signature, operation="write", **same)
    assert not signature_matches("v1_ü", operation="read", **same)


def test_the_selector_carries_a_user_and_no_password() -> None:
    assert decode_user_selector(encode_user_selector("root")) == "root"
    assert decode_user_selector("Basic " + base64.b64encode(b"root").decode()) == "root"
    assert decode_user_selector(None) is None
    assert decode_user_selector("Bearer abc") is None
    with pytest.raises(ValueError, match="Basic"):
        decode_user_selector("Basic !!!")
