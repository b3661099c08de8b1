"""Which backends there are, and how to open one.

A backend is a module with two names: `Settings`, a frozen dataclass whose fields are its whole
configuration (forms and masking are generated from the fields' metadata, see `setting`), and
`async def open_client(settings) -> SandboxClient`. Modules are imported on first use.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest
from sandboxes.fingerprint import fingerprint

__all__ = [
    "PROVIDERS",
    "Provider",
    "account_fingerprint",
    "open_client",
    "provider",
    "setting",
    "settings_type",
]


@dataclass(frozen=True, slots=True)
class Provider:
    """`label` is what people read; `module` is imported on first use."""

    name: str
    label: str
    module: str


PROVIDERS: dict[str, Provider] = {
    p.name: p
    for p in (
        Provider("local", "This machine (runc)", "sandboxes.backends.local"),
        Provider("docker", "Docker", "sandboxes.backends.docker"),
        Provider("cube", "CubeSandbox cluster", "sandboxes.backends.cube"),
        Provider("e2b", "E2B or a compatible server", "sandboxes.backends.e2b"),
    )
}


def setting(
    *,
    label: str,
    help: str = "",
    secret: bool = False,
    identity: bool = False,
    place: bool = False,
    multiline: bool = False,
    minimum: float | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """A field of a backend's Settings. `secret` fields are stored encrypted and never shown;
    changing an `identity` field points the backend at another provider account. `place` fields say where the
    account is; the first that is not left at its default counts. `multiline` text may
    have many lines; a number is at least `minimum`."""
    metadata = {
        "label": label,
        "help": help,
        "secret": secret,
        "identity": identity,
        "place": place,
        "multiline": multiline,
        "minimum": minimum,
    }
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def provider(name: str) -> Provider:
    """Raises InvalidRequest that lists the known names."""
    try:
        return PROVIDERS[name]
    except KeyError:
        known = ", ".join(sorted(PROVIDERS))
        raise InvalidRequest(
            f"There is no backend called “{name}”; choose one of {known}."
        ) from None


def settings_type(name: str) -> type[Any]:
    """The backend's Settings dataclass."""
    return _module(name).Settings  # type: ignore[no-any-return]


def account_fingerprint(name: str, values: Mapping[str, Any]) -> str:
    """Of the provider account that these settings lead to; see `sandboxes.fingerprint`."""
    places = [field for field in dataclasses.fields(settings_type(name)) if field.metadata["place"]]
    told = (values.get(field.name) for field in places)
    chosen = (
        str(value)
        for value, field in zip(told, places, strict=True)
        if value and value != field.default
    )
    return fingerprint(
        provider=name, api_key=str(values.get("api_key") or ""), api_url=next(chosen, "")
    )


async def open_client(name: str, values: Mapping[str, Any]) -> SandboxClient:
    """A client for one provider account. InvalidRequest names every unknown or missing setting;
    Unavailable if the backend must be asked for its capabilities and does not answer."""
    settings_cls = settings_type(name)
    fields = {field.name: field for field in dataclasses.fields(settings_cls)}
    unknown = sorted(set(values) - set(fields))
    missing = sorted(
        key
        for key, field in fields.items()
        if key not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )
    if unknown or missing:
        parts = [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        parts += [f"missing: {', '.join(missing)}"] * bool(missing)
        raise InvalidRequest(f"The settings of this {name} backend don't fit ({'; '.join(parts)}).")
    client: SandboxClient = await _module(name).open_client(settings_cls(**values))
    return client


def _module(name: str) -> ModuleType:
    return importlib.import_module(provider(name).module)
