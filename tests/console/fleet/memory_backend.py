"""A backend kind for tests: simulated accounts in this process's memory, told apart by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandboxes.client import Pausing, SandboxClient
from sandboxes.errors import Authentication
from sandboxes.registry import setting
from sandboxes.testing.simulated import SimulatedClient, SimulatedProvider, SimulatedSandbox
from sandboxes.types import ExecRequest

PROVIDER = "memory"
ACCOUNTS: dict[str, SimulatedProvider] = {}
REVOKED: set[str] = set()
"""API keys that the provider takes no longer."""
TOLD_IDS: dict[str, str] = {}
"""The provider's own word for an account, where it has one, by the account's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    account: str = setting(label="Account", identity=True)
    api_url: str = setting(label="Address", identity=True, place=True, default="")
    api_key: str = setting(label="API key", secret=True, identity=True, default="")
    pauses: bool = setting(label="Pauses", default=True)
    token: str = setting(label="Token", secret=True, default="")


class Client(SimulatedClient):
    def __init__(self, account: SimulatedProvider, settings: Settings) -> None:
        super().__init__(account)
        self.capabilities = replace(self.capabilities, pause=settings.pauses)
        self.account_id = TOLD_IDS.get(settings.account)

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
    if settings.api_key in REVOKED:
        raise Authentication("The key is not taken any more; give another one.")
    return Client(account(settings.account), settings)
