"""filesystem.Filesystem against real sandboxes."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.sandboxes.sandboxd.server.raw import RawSandbox

pytestmark = pytest.mark.sandbox


async def fs(sandbox: RawSandbox, method: str, **message: Any) -> httpx.Response:
    return await sandbox.call(f"filesystem.Filesystem/{method}", message)


async def ok(sandbox: RawSandbox, method: str, **message: Any) -> dict[str, Any]:
    response = await fs(sandbox, method, **message)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def code(sandbox: RawSandbox, method: str, **message: Any) -> tuple[int, str]:
    response = await fs(sandbox, method, **message)
    return response.status_code, response.json().get("code")


async def test_stat_describes_as_envd_does(sandbox: RawSandbox) -> None:
    await sandbox.sh("printf hello > a.txt; chmod 640 a.txt; ln -s a.txt link; mkdir -m 1777 d")

    entry = (await ok(sandbox, "Stat", path="a.txt"))["entry"]
    assert entry["modifiedTime"].endswith("Z")
    del entry["modifiedTime"]
    assert entry == {
        "name": "a.txt",
        "type": "FILE_TYPE_FILE",
        "path": "/home/user/a.txt",
        "size": "5",
        "mode": 0o640,
        "permissions": "-rw-r-----",
        "owner": "user",
        "group": "user",
    }
    link = (await ok(sandbox, "Stat", path="~/link"))["entry"]
    assert link["type"] == "FILE_TYPE_FILE"
    assert link["symlinkTarget"] == "/home/user/a.txt"
    assert link["permissions"] == "Lrwxrwxrwx"
    directory = (await ok(sandbox, "Stat", path="/home/user/d/"))["entry"]
    assert directory["type"] == "FILE_TYPE_DIRECTORY"
    assert directory["permissions"] == "dtrwxrwxrwx"
    assert await code(sandbox, "Stat", path="/none") == (404, "not_found")


async def test_list_walks_to_its_depth_and_not_into_links(sandbox: RawSandbox) -> None:
    await sandbox.sh("mkdir -p t/b/c t/a; touch t/a/1 t/b/c/2; ln -s a t/z")

    async def names(**message: Any) -> list[str]:
        entries = (await ok(sandbox, "ListDir", path="t", **message))["entries"]
        return [entry["path"].removeprefix("/home/user/t/") for entry in entries]

    assert await names() == ["a", "b", "z"]
    assert await names(depth=0) == ["a", "b", "z"]
    assert await names(depth=2) == ["a", "a/1", "b", "b/c", "z"]
    assert await names(depth=9) == ["a", "a/1", "b", "b/c", "b/c/2", "z"]
    assert await code(sandbox, "ListDir", path="none") == (404, "not_found")
    assert await code(sandbox, "ListDir", path="t/a/1") == (400, "invalid_argument")


async def test_make_dir_says_what_is_in_the_way(sandbox: RawSandbox) -> None:
    entry = (await ok(sandbox, "MakeDir", path="x/y/z"))["entry"]
    assert (entry["path"], entry["owner"], entry["mode"]) == ("/home/user/x/y/z", "user", 0o755)
    assert await code(sandbox, "MakeDir", path="x/y") == (409, "already_exists")
    await sandbox.sh("touch f")
    assert await code(sandbox, "MakeDir", path="f") == (400, "invalid_argument")


async def test_move_makes_parents_and_remove_forgives(sandbox: RawSandbox) -> None:
    await sandbox.sh("echo 1 > one")
    entry = (await ok(sandbox, "Move", source="one", destination="new/place/two"))["entry"]
    assert entry["path"] == "/home/user/new/place/two"
    assert await code(sandbox, "Move", source="one", destination="x") == (404, "not_found")
    await ok(sandbox, "Remove", path="new")
    await ok(sandbox, "Remove", path="new")
    assert await code(sandbox, "Stat", path="new") == (404, "not_found")


async def test_a_bad_path_is_refused(sandbox: RawSandbox) -> None:
    for path in ("a\0b", "~root/x", 5):
        assert await code(sandbox, "Stat", path=path) == (400, "invalid_argument")


async def test_a_watch_streams_start_first_then_events_with_entries(sandbox: RawSandbox) -> None:
    await sandbox.sh("mkdir w")
    message = {"path": "w", "recursive": True, "includeEntry": True}
    async with sandbox.stream("filesystem.Filesystem/WatchDir", message) as frames:
        assert await anext(frames) == (False, {"start": {}})
        await sandbox.sh("mkdir w/in")
        _, made = await anext(frames)
        assert made["filesystem"]["type"] == "EVENT_TYPE_CREATE"
        assert made["filesystem"]["name"] == "in"
        assert made["filesystem"]["entry"]["type"] == "FILE_TYPE_DIRECTORY"
        await sandbox.sh("echo hi > w/in/f; rm w/in/f")
        seen: list[tuple[str, str]] = []
        async with asyncio.timeout(5):
            while ("in/f", "EVENT_TYPE_REMOVE") not in seen:
                _, frame = await anext(frames)
                seen.append((frame["filesystem"]["name"], frame["filesystem"]["type"]))
    assert seen[0] == ("in/f", "EVENT_TYPE_CREATE")
    assert ("in/f", "EVENT_TYPE_WRITE") in seen


async def test_polled_watchers_collect_between_polls(sandbox: RawSandbox) -> None:
    await sandbox.sh("mkdir p")
    watcher_id = (await ok(sandbox, "CreateWatcher", path="p"))["watcherId"]
    await sandbox.sh("touch p/a; mv p/a p/b")

    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(5):
        while ("b", "EVENT_TYPE_CREATE") not in seen:
            events = (await ok(sandbox, "GetWatcherEvents", watcherId=watcher_id))["events"]
            seen += [(event["name"], event["type"]) for event in events]
            await asyncio.sleep(0.01)
    assert ("a", "EVENT_TYPE_CREATE") in seen
    assert ("a", "EVENT_TYPE_RENAME") in seen

    await ok(sandbox, "RemoveWatcher", watcherId=watcher_id)
    gone = await code(sandbox, "GetWatcherEvents", watcherId=watcher_id)
    assert gone == (404, "not_found")


async def test_what_cannot_be_watched_says_why(sandbox: RawSandbox) -> None:
    await sandbox.sh("touch file")
    assert await code(sandbox, "CreateWatcher", path="none") == (404, "not_found")
    assert await code(sandbox, "CreateWatcher", path="file") == (400, "invalid_argument")
