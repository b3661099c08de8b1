"""Building the base template through the daemon, with an mmdebstrap that makes a tiny root file system."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandboxes.sandboxd.app import Daemon
from sandboxes.sandboxd.engines.base import TemplateRecord
from sandboxes.sandboxd.templates import TemplateStore
from sandboxes.testing.base import until
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="building a template needs root")

BUILDER = """#!/bin/sh
for last; do :; done
for word; do case "$word" in bookworm) seen=1;; *) [ "$seen" = 1 ] && [ -z "$target" ] && target="$word";; esac; done
echo "5 upgraded, 2 newly installed"
mkdir -p "$target/proc"
mount -t proc proc "$target/proc"
echo "Unpacking bash (5.2)"
while [ -e {hold} ]; do sleep 0.05; done
if [ -e {fail} ]; then echo "E: No space left on device"; exit 1; fi
mkdir -p "$target/bin" "$target/etc"
cp /bin/sh "$target/bin/sh"
printf 'root:x:0:0:root:/root:/bin/sh\\nuser:x:1000:1000::/home/user:/bin/sh\\n' > "$target/etc/passwd"
printf 'root:x:0:\\nuser:x:1000:\\n' > "$target/etc/group"
"""


class StoreEngine(ScriptedEngine):
    """Whose templates are those of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.store = TemplateStore(folder)

    async def templates(self) -> list[TemplateRecord]:
        return [
            TemplateRecord(id=t.id, name=t.name, created_at=t.created_at, size_bytes=t.size_bytes)
            for t in self.store.list()
        ]


class Host:
    def __init__(self, folder: Path) -> None:
        self.hold, self.fail = folder / "hold", folder / "fail"
        self.templates = folder / "templates"
        builder = folder / "bin/mmdebstrap"
        builder.parent.mkdir()
        builder.write_text(
            BUILDER.replace("{hold}", str(self.hold)).replace("{fail}", str(self.fail))
        )
        builder.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr("sandboxes.sandboxd.builds._maps_users", lambda: False)
    return made


@pytest.fixture
async def http(host: Host, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    daemon = await Daemon.start(StoreEngine(host.templates), tmp_path, templates_dir=host.templates)
    transport = httpx.ASGITransport(daemon.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://sandboxd") as client:
        yield client
    await daemon.aclose()


PATH = "/sandboxd/templates/base/build"


async def ended(http: httpx.AsyncClient) -> dict[str, object]:
    answer: dict[str, object] = {}

    async def is_over() -> bool:
        nonlocal answer
        answer = (await http.get(PATH)).json()
        return answer["status"] != "building"

    await until(is_over, within_s=20)
    return answer


async def test_a_missing_base_is_built_and_its_progress_told(
    http: httpx.AsyncClient, host: Host
) -> None:
    assert (await http.get(PATH)).status_code == 404
    host.hold.touch()
    begun = await http.post(PATH, json={})
    assert (begun.status_code, begun.json()["status"]) == (202, "building")

    async def unpacking() -> bool:
        return "unpacking bash" in (await http.get(PATH)).json()["step"]

    await until(unpacking, within_s=10)
    joined = (await http.post(PATH, json={"rebuild": True})).json()
    assert joined["status"] == "building"
    assert 0 < joined["fraction"] < 1
    host.hold.unlink()
    done = await ended(http)
    assert done["status"] == "ready", done
    assert [t.id for t in TemplateStore(host.templates).list()] == [done["templateID"]]
    assert (await http.post(PATH, json={})).status_code == 200


async def test_a_rebuild_makes_a_new_version_beside_the_old(
    http: httpx.AsyncClient, host: Host
) -> None:
    await http.post(PATH, json={})
    first = (await ended(http))["templateID"]
    assert (await http.post(PATH, json={"rebuild": True})).status_code == 202
    second = (await ended(http))["templateID"]
    assert first != second
    assert [t.id for t in TemplateStore(host.templates).list()] == [second, first]
    # Without the first, its recipe is still known to be built.
    TemplateStore(host.templates).remove(str(first))
    assert (await http.post(PATH, json={})).json()["templateID"] == second


async def test_a_failed_build_says_why_and_can_be_tried_again(
    http: httpx.AsyncClient, host: Host
) -> None:
    host.fail.touch()
    await http.post(PATH, json={})
    failed = await ended(http)
    assert failed["status"] == "error"
    assert "free some space" in str(failed["error"])
    host.fail.unlink()
    assert (await http.post(PATH, json={})).status_code == 202
    assert (await ended(http))["status"] == "ready"


async def test_what_has_no_recipe_is_refused_with_the_mend(http: httpx.AsyncClient) -> None:
    answer = await http.post("/sandboxd/templates/data/build", json={})
    assert answer.status_code == 501
    assert "template import" in answer.json()["message"]


async def test_a_build_ends_with_the_daemon(host: Host, tmp_path: Path) -> None:
    daemon = await Daemon.start(StoreEngine(host.templates), tmp_path, templates_dir=host.templates)
    host.hold.touch()
    await daemon.builds.ensure("base", rebuild=False)
    async with asyncio.timeout(10):
        while "unpacking" not in (await daemon.builds.status("base")).step:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await daemon.aclose()
    assert not [p for p in _command_lines() if str(host.templates) in p]
    assert str(host.templates) not in _mounts()
    assert TemplateStore(host.templates).list() == []


async def test_without_the_means_the_capability_says_why(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (await http.get("/sandboxd/engine")).json()
    assert told["capabilities"]["template_builds"] is True
    monkeypatch.setattr("sandboxes.sandboxd.builds._maps_users", lambda: True)
    told = (await http.get("/sandboxd/engine")).json()
    assert told["capabilities"]["template_builds"] is False
    assert "needs root" in told["notes"]["template_builds"]
    assert (await http.post(PATH, json={})).status_code == 501


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def _mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()
