"""Events of a watch between two looks at it."""

from __future__ import annotations

import pytest

from sandboxes.sandboxd.watchers import EVENTS_KEPT, Watch, WatchBroken, WatchEnded


async def test_repeats_that_nobody_read_are_one() -> None:
    watch = Watch()
    for event in ("create", "chmod", "chmod", "write", "chmod"):
        watch.put((event, "f"))
    assert [kind for kind, _ in await watch.wait(1)] == ["create", "chmod", "write", "chmod"]
    watch.put(("chmod", "f"))
    assert watch.take() == [("chmod", "f")]
    assert await watch.wait(0.01) == []


async def test_the_oldest_events_go_when_nobody_looks() -> None:
    watch = Watch()
    for number in range(EVENTS_KEPT + 5):
        watch.put(("write", str(number)))
    assert watch.take()[0] == ("write", "5")


async def test_what_happened_is_told_before_the_end() -> None:
    watch = Watch()
    watch.put(("remove", "."))
    watch.end(WatchEnded("gone"))
    watch.end(WatchBroken("later"))
    assert await watch.wait(1) == [("remove", ".")]
    with pytest.raises(WatchEnded):
        await watch.wait(1)
