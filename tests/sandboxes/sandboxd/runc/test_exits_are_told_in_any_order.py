"""A command's exit is told however the spawner gets to see its start, its first words and its end."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from sandboxes.sandboxd.engines.runc.spawner import main
from sandboxes.sandboxd.engines.runc.spawner.main import Birth, Spawner

FIRST, CHILD, OTHER = 101, 102, 103


class Scene:
    """One command: `FIRST` has named the child that becomes it, and all else is still to come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sandboxd, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sandboxd.setblocking(False)
        self.spawner = Spawner(control)
        self.dead: list[tuple[int, int]] = []
        monkeypatch.setattr(main.os, "waitpid", self._waitpid)
        self.birth, self.said = self._bear(7, FIRST)
        self.said.send(json.dumps({"child": CHILD}).encode())

    def is_ready(self) -> None:
        self.said.send(json.dumps({"ready": 5}).encode())
        self.said.close()

    def _bear(self, spawn_id: int, first: int) -> tuple[Birth, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        birth = Birth(spawn_id, ours, first)
        self.spawner._by_first[first] = self.spawner._births[spawn_id] = birth
        self.spawner._selector.register(ours, selectors.EVENT_READ, birth)
        return birth, theirs

    def _waitpid(self, _pid: int, _options: int) -> tuple[int, int]:
        return self.dead.pop(0) if self.dead else (0, 0)

    def dies(self, pid: int, status: int) -> None:
        self.dead.append((pid, status))
        self.spawner._reap()

    def hear(self) -> None:
        if self.birth.channel.fileno() >= 0:
            self.spawner._hear(self.birth)

    def told(self) -> Iterator[dict[str, int]]:
        while True:
            try:
                yield json.loads(self.sandboxd.recv(4096))
            except BlockingIOError:
                return

    def close(self) -> None:
        for end in (self.sandboxd, self.spawner._control, self.birth.channel):
            end.close()
        os.close(self.spawner._devnull)
        self.spawner._selector.close()


STEPS: dict[str, Callable[[Scene], None]] = {
    "ready": Scene.is_ready,
    "first ends": lambda scene: scene.dies(FIRST, 0),
    "child ends": lambda scene: scene.dies(CHILD, 256),
    "another ends": lambda scene: scene.dies(OTHER, 9),
    "hear": Scene.hear,
    "hear on": Scene.hear,
}
ORDERS = [
    order
    for order in itertools.permutations(STEPS)
    if order.index("ready") < order.index("child ends")
    and order.index("hear") < order.index("hear on")
]


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_in_every_order(order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    try:
        for step in order:
            STEPS[step](scene)
        while scene.birth.channel.fileno() >= 0:
            scene.hear()
        assert list(scene.told()) == [
            {"started": 7, "pid": 5},
            {"exited": 7, "status": 256},
        ]
        assert not scene.spawner._births
        assert not scene.spawner._running
    finally:
        scene.close()
