"""How the inside of a container is reached: its processes, files and network.

On the engine's own host that is done through the kernel (`local.py`), elsewhere through Docker's API
alone.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

from sandboxes.capabilities import Capabilities
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import (
    Connection,
    FileSystem,
    ProcessSpec,
    RunningProcess,
    Usage,
)
from sandboxes.sandboxd.engines.docker.records import ContainerRecord

__all__ = ["Reach"]


class Reach(abc.ABC):
    """Containers are known to it between `attach` or `adopt` and `detach`."""

    @abc.abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abc.abstractmethod
    def prepare(self) -> None:
        """Before containers are looked at. Unsupported, with the mend, if the host can't do it."""

    @abc.abstractmethod
    async def start(self, live: Iterable[str]) -> None:
        """`live` have been adopted; what is left of others is removed."""

    @abc.abstractmethod
    async def aclose(self) -> None: ...

    @abc.abstractmethod
    def host_config(self, policy: NetworkPolicy) -> Mapping[str, Any]:
        """The network's part of a new container's HostConfig."""

    @abc.abstractmethod
    async def adopt(self, record: ContainerRecord, state: Mapping[str, Any]) -> bool:
        """Take a running container back, whose `State` this is. False if it can't be used."""

    @abc.abstractmethod
    async def attach(self, record: ContainerRecord, state: Mapping[str, Any]) -> None:
        """A container that was just started. If it fails, `detach` clears up."""

    @abc.abstractmethod
    async def detach(self, sandbox_id: str) -> None:
        """Idempotent, after the container is gone: nothing of it is left on the host."""

    @abc.abstractmethod
    async def dead(self, record: ContainerRecord) -> bool: ...

    @abc.abstractmethod
    async def spawn(self, record: ContainerRecord, process: ProcessSpec) -> RunningProcess: ...

    @abc.abstractmethod
    def files(self, record: ContainerRecord) -> FileSystem: ...

    @abc.abstractmethod
    async def set_network(self, record: ContainerRecord, policy: NetworkPolicy) -> None: ...

    @abc.abstractmethod
    async def dial(self, record: ContainerRecord, port: int) -> Connection: ...

    @abc.abstractmethod
    async def usage(self, record: ContainerRecord) -> Usage: ...
