"""The store shows whole templates only, and clears up after a builder that died."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandboxes.errors import InvalidRequest, Unsupported
from sandboxes.sandboxd.templates import TemplateStore


def put(root: Path, template_id: str, name: str, *, age_days: int = 0) -> None:
    folder = root / template_id
    (folder / "rootfs").mkdir(parents=True)
    created = datetime.now(UTC) - timedelta(days=age_days)
    record = {"id": template_id, "name": name, "created_at": created.isoformat(), "size_bytes": 7}
    (folder / "template.json").write_text(json.dumps(record))


def test_a_name_means_its_newest(tmp_path: Path) -> None:
    put(tmp_path, "base-aaaa", "base", age_days=2)
    put(tmp_path, "base-bbbb", "base", age_days=1)
    put(tmp_path, "other-cccc", "other")
    store = TemplateStore(tmp_path)

    assert [t.id for t in store.list()] == ["other-cccc", "base-bbbb", "base-aaaa"]
    assert store.get("base").id == "base-bbbb"
    assert store.get("base-aaaa").rootfs == tmp_path / "base-aaaa/rootfs"


def test_an_unknown_name_is_refused_with_what_there_is(tmp_path: Path) -> None:
    put(tmp_path, "base-aaaa", "base")
    put(tmp_path, "data-bbbb", "data")
    with pytest.raises(InvalidRequest, match="no template 'nope'; there are: base, data"):
        TemplateStore(tmp_path).get("nope")


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path) -> None:
    store = TemplateStore(tmp_path / "not-made-yet")
    assert store.list() == []
    with pytest.raises(InvalidRequest, match="template build"):
        store.get("base")


def test_half_made_templates_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / ".work-x/rootfs").mkdir(parents=True)
    (tmp_path / "no-record/rootfs").mkdir(parents=True)
    assert TemplateStore(tmp_path).list() == []


def test_remove_is_idempotent_and_whole(tmp_path: Path) -> None:
    put(tmp_path, "base-aaaa", "base")
    store = TemplateStore(tmp_path)
    store.remove("base-aaaa")
    store.remove("base-aaaa")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../outside", "..", ".", ".lock"])
def test_remove_stays_in_the_store(tmp_path: Path, name: str) -> None:
    put(tmp_path, "outside", "outside")
    store = TemplateStore(tmp_path / "store")
    store.root.mkdir()
    store.remove(name)
    assert (tmp_path / "outside/template.json").exists()


def test_the_next_builder_clears_what_a_dead_one_left(tmp_path: Path) -> None:
    store = TemplateStore(tmp_path)
    (tmp_path / ".work-dead/rootfs/etc").mkdir(parents=True)
    (tmp_path / ".trash-dead/base-x").mkdir(parents=True)
    with store._building(lambda text, fraction: None) as (work, _):
        assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [work.name]
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_two_builders_take_turns(tmp_path: Path) -> None:
    store = TemplateStore(tmp_path)
    lock = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    waiting, entered = threading.Event(), threading.Event()

    def build() -> None:
        with store._building(lambda text, fraction: waiting.set()):
            entered.set()

    thread = threading.Thread(target=build)
    thread.start()
    assert waiting.wait(10)
    assert not entered.is_set()
    os.close(lock)
    thread.join(10)
    assert entered.is_set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_the_right_to_write_root_is_asked_for(tmp_path: Path) -> None:
    store = TemplateStore(tmp_path / "templates")
    store.root.mkdir(mode=0o700)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            store.build_base(lambda text, fraction: None)
        except Unsupported as error:
            os._exit(0 if "sudo" in error.message else 2)
        except BaseException:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
