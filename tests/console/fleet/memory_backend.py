"""A backend kind for tests: simulated accounts in this process's memory, told apart by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandboxes.client import Pausing, SandboxClient
from sandboxes.registry import setting
from sandboxes.testing.simulated import SimulatedClient, SimulatedProvider, SimulatedSandbox
from sandboxes.types import ExecRequest

PROVIDER = "memory"
ACCOUNTS: dict[str, SimulatedProvider] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    account: str = setting(label="Account", identity=True)
    api_url: str = setting(label="Address", identity=True, default="")
    pauses: bool = setting(label="Pauses", default=True)


class Client(SimulatedClient):
    def __init__(self, account: SimulatedProvider, settings: Settings) -> None:
        super().__init__(account)
        self.capabilities = replace(self.capabilities, pause=settings.pauses)

    @property
    def pausing(self) -> Pausing | None:
        return super().pausing if self.capabilities.pause else None


async def _shell(
    sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
) -> tuple[int, bytes, bytes]:
    return 0, b"", b""


def account(name: str) -> SimulatedProvider:
    if name not in ACCOUNTS:
        ACCOUNTS[name] = SimulatedProvider()
        ACCOUNTS[name].commands["/bin/sh"] = _shell
    return ACCOUNTS[name]


async def open_client(settings: Settings) -> SandboxClient:
    return Client(account(settings.account), settings)
