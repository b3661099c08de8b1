"""/files against real sandboxes: both upload forms, ranges, conditions, encodings, signatures."""

from __future__ import annotations

import gzip
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandboxes.wire.encoding import sign_file_url
from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sandboxd.server.raw import RawSandbox

pytestmark = pytest.mark.sandbox

MIB = 1024 * 1024
RAW = {"Content-Type": "application/octet-stream"}


async def put(sandbox: RawSandbox, path: str, content: bytes, **headers: str) -> httpx.Response:
    return await sandbox.http.post(
        "/files",
        params={"path": path},
        content=content,
        headers={**sandbox.headers(), **RAW, **headers},
    )


async def get(sandbox: RawSandbox, path: str, **headers: str) -> httpx.Response:
    return await sandbox.http.get(
        "/files", params={"path": path}, headers={**sandbox.headers(), **headers}
    )


async def test_raw_upload_answers_a_list_of_one(sandbox: RawSandbox) -> None:
    response = await put(sandbox, "deep/er/a.txt", b"hello")
    assert response.status_code == 200
    assert response.json() == [
        {"name": "a.txt", "path": "/home/user/deep/er/a.txt", "type": "file"}
    ]
    done = await sandbox.sh("stat -c '%a %U %G' deep deep/er/a.txt")
    assert done.stdout == b"755 user user\n644 user user\n"
    assert (await get(sandbox, "deep/er/a.txt")).content == b"hello"


async def test_multipart_keeps_the_path_in_the_filename(sandbox: RawSandbox) -> None:
    unicode_name = "/home/user/文件 ü.txt"
    response = await sandbox.http.post(
        "/files",
        headers=sandbox.headers(),
        files=[
            ("file", ("/home/user/m/one.txt", b"1" * 100)),
            ("file", (unicode_name, b"2" * (3 * MIB))),
            ("other", ("ignored", b"x")),
        ],
    )
    assert response.status_code == 200, response.text
    assert [item["path"] for item in response.json()] == ["/home/user/m/one.txt", unicode_name]
    assert (await get(sandbox, unicode_name)).content == b"2" * (3 * MIB)


async def test_a_path_in_the_query_names_the_one_part(sandbox: RawSandbox) -> None:
    response = await sandbox.http.post(
        "/files?path=here.txt", headers=sandbox.headers(), files={"file": ("other", b"x")}
    )
    assert response.json()[0]["path"] == "/home/user/here.txt"
    twice = await sandbox.http.post(
        "/files?path=here.txt",
        headers=sandbox.headers(),
        files=[("file", ("a", b"x")), ("file", ("b", b"y"))],
    )
    assert twice.status_code == 400
    assert "only the first" in twice.json()["message"]


async def test_metadata_is_kept_and_replaced_whole(sandbox: RawSandbox) -> None:
    first = await put(sandbox, "m.txt", b"x", **{"X-Metadata-Author": "me", "X-Metadata-Tag": "1"})
    assert first.json()[0]["metadata"] == {"author": "me", "tag": "1"}
    again = await put(sandbox, "m.txt", b"y", **{"X-Metadata-Tag": "2"})
    assert again.json()[0]["metadata"] == {"tag": "2"}
    assert "metadata" not in (await put(sandbox, "m.txt", b"z")).json()[0]


async def test_gzip_travels_both_ways(sandbox: RawSandbox) -> None:
    content = b"compress me " * 100_000
    zipped = gzip.compress(content)
    assert (await put(sandbox, "z", zipped, **{"Content-Encoding": "gzip"})).status_code == 200

    down = await get(sandbox, "z", **{"Accept-Encoding": "gzip"})
    assert down.headers["Content-Encoding"] == "gzip"
    assert down.headers["Vary"] == "Accept-Encoding"
    assert down.content == content
    plain = await get(sandbox, "z", **{"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.headers["Content-Length"] == str(len(content))
    for sent in (zipped[:-20], b"not gzip"):
        assert (await put(sandbox, "bad", sent, **{"Content-Encoding": "gzip"})).status_code == 400
    assert (await put(sandbox, "bad", b"x", **{"Content-Encoding": "br"})).status_code == 400
    none = await get(sandbox, "z", **{"Accept-Encoding": "br, identity;q=0"})
    assert none.status_code == 406


async def test_ranges_and_conditions(sandbox: RawSandbox) -> None:
    await put(sandbox, "r", bytes(range(100)))
    whole = await get(sandbox, "r")
    etag, modified = whole.headers["ETag"].removeprefix("W/"), whole.headers["Last-Modified"]

    part = await get(sandbox, "r", Range="bytes=10-19")
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    assert part.headers["Content-Range"] == "bytes 10-19/100"
    assert (await get(sandbox, "r", Range="bytes=-5")).content == bytes(range(95, 100))
    assert (await get(sandbox, "r", Range="bytes=90-")).content == bytes(range(90, 100))
    assert (await get(sandbox, "r", Range="bytes=200-")).status_code == 416
    assert (await get(sandbox, "r", Range="bytes=0-1,5-6")).status_code == 200
    assert (await get(sandbox, "r", **{"If-None-Match": etag})).status_code == 304
    assert (await get(sandbox, "r", **{"If-Modified-Since": modified})).status_code == 304
    assert (await get(sandbox, "r", **{"If-Match": '"other"'})).status_code == 412
    stale = await get(sandbox, "r", **{"Range": "bytes=0-1", "If-Range": '"other"'})
    assert stale.status_code == 200


async def test_what_cannot_be_read_or_written_says_why(sandbox: RawSandbox) -> None:
    await sandbox.sh("mkdir d")
    assert (await get(sandbox, "none")).status_code == 404
    assert (await get(sandbox, "d")).status_code == 400
    assert (await put(sandbox, "d", b"x")).status_code == 400
    no_path = await sandbox.http.post("/files", content=b"x", headers={**sandbox.headers(), **RAW})
    assert no_path.status_code == 400
    wrong = await put(sandbox, "x", b"x", **{"Content-Type": "text/plain"})
    assert wrong.status_code == 400
    nobody = await sandbox.http.post(
        "/files?path=x&username=noone", content=b"x", headers={**sandbox.headers(), **RAW}
    )
    assert nobody.status_code == 401
    reader = await sandbox.http.get("/files?path=/x&username=noone", headers=sandbox.headers())
    assert reader.status_code == 401
    for response in (no_path, wrong, nobody):
        assert response.json()["code"] == response.status_code
        assert response.json()["message"]


async def test_malformed_multipart_is_refused(sandbox: RawSandbox) -> None:
    for content_type, body in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"no boundary here"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"'),
    ):
        response = await sandbox.http.post(
            "/files", content=body, headers=sandbox.headers(**{"Content-Type": content_type})
        )
        assert response.status_code == 400, body


async def test_links_are_followed_inside_the_sandbox_only(sandbox: RawSandbox) -> None:
    await sandbox.sh(
        "ln -s /etc/hostname out; ln -s ../../../../../../etc/passwd up; ln -s loop loop"
    )
    inside = (await sandbox.sh("cat /etc/passwd")).stdout
    assert (await get(sandbox, "up")).content == inside
    assert (await get(sandbox, "loop")).status_code == 400
    theirs = (await sandbox.sh("cat /etc/hostname")).stdout
    assert (await get(sandbox, "out")).content == theirs


async def test_a_signed_url_needs_no_token_and_no_id(sandbox: RawSandbox) -> None:
    token = sandbox.reply["envdAccessToken"]
    expires = int(time.time()) + 60

    def params(operation: str, expires_at: int | None, path: str = "s.txt") -> dict[str, str]:
        signature = sign_file_url(
            path=path,
            operation=operation,
            user="",
            token=token,
            expires_at=expires_at,  # type: ignore[arg-type]
        )
        sent = {"path": path, "signature": signature}
        return sent if expires_at is None else {**sent, "signature_expiration": str(expires_at)}

    http = sandbox.http
    up = await http.post("/files", params=params("write", None), content=b"signed", headers=RAW)
    assert up.status_code == 200, up.text
    down = await http.get("/files", params=params("read", expires))
    assert (down.status_code, down.content) == (200, b"signed")

    expired = await http.get("/files", params=params("read", expires - 120))
    assert expired.json() == {"code": 401, "message": "signature is already expired"}
    addressed = sandbox.headers()
    del addressed["X-Access-Token"]
    wrong = await http.get("/files", params=params("write", None), headers=addressed)
    assert wrong.json() == {"code": 401, "message": "invalid signature"}
    missing = await http.get("/files?path=s.txt", headers=addressed)
    assert missing.json() == {"code": 401, "message": "missing signature query parameter"}


async def test_a_hundred_megabytes_travel_with_flat_memory(
    sandbox: RawSandbox, sandboxd: Daemon
) -> None:
    block = os.urandom(MIB)
    digest = hashlib.sha256()

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(100):
            digest.update(block)
            yield block

    before = peak_kb(sandboxd)
    up = await sandbox.http.post(
        "/files?path=big", content=blocks(), headers={**sandbox.headers(), **RAW}
    )
    assert up.status_code == 200
    got = hashlib.sha256()
    async with sandbox.http.stream(
        "GET", "/files?path=big", headers={**sandbox.headers(), "Accept-Encoding": "identity"}
    ) as response:
        async for chunk in response.aiter_raw():
            got.update(chunk)
    assert got.digest() == digest.digest()
    assert peak_kb(sandboxd) - before < 32 * 1024


async def test_kernel_files_are_the_sandboxes_own(sandbox: RawSandbox) -> None:
    status = await get(sandbox, "/proc/self/status")
    assert b"Name:\tcat" in status.content
    assert (await get(sandbox, "/proc/sys/kernel/random/boot_id")).status_code == 200
    assert (await get(sandbox, "/proc/none")).status_code == 404


async def test_composing_joins_and_removes(sandbox: RawSandbox) -> None:
    await put(sandbox, "c1", b"one ")
    await put(sandbox, "c2", b"two")
    body = {"source_paths": ["c1", "c2"], "destination": "joined"}
    response = await sandbox.http.post("/files/compose", json=body, headers=sandbox.headers())
    assert response.json()["path"] == "/home/user/joined"
    assert (await get(sandbox, "joined")).content == b"one two"
    assert (await get(sandbox, "c1")).status_code == 404


async def test_small_things_of_envd(sandbox: RawSandbox) -> None:
    http, headers = sandbox.http, sandbox.headers()
    assert (await http.get("/health", headers=headers)).status_code == 204
    assert (await http.get("/envs", headers=headers)).json() == {}
    assert (await http.get("/metrics", headers=headers)).json()["mem_total"] > 0
    for path in ("/init", "/freeze", "/upgrade"):
        assert (await http.post(path, headers=headers)).status_code == 404
    assert (await http.put("/files", headers=headers)).status_code == 405


def peak_kb(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])
