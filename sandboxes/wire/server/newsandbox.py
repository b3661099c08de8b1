"""The body of a create, read into what is asked for. What cannot be done here is refused by name, never
ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxes.errors import InvalidRequest, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.wire.messages import DEFAULT_TIMEOUT_S, DEFAULT_TIMEOUT_V1_S
from sandboxes.wire.server.bodies import Fields

__all__ = [
    "CreateSpec",
    "check_timeout",
    "parse_egress",
    "parse_new_sandbox",
    "refuse_memory_false",
]

MAX_TIMEOUT_S = 365 * 24 * 3600

_NO_FILESYSTEM_ONLY = (
    "This backend keeps the memory of a paused sandbox and cannot drop it; "
    "leave memory out or set it to true"
)
_UNSUPPORTED = ("volumeMounts", "iam")
_UNSUPPORTED_NETWORK = ("dnsServers", "egressProxy", "httpsPorts", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSpec:
    """`secured` gives the sandbox an access token; only old clients ask for one without."""

    template: str
    policy: NetworkPolicy
    timeout_s: float
    auto_pause: bool = False
    auto_resume: bool = False
    secured: bool = True
    mask_request_host: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def parse_new_sandbox(body: Fields, *, v1: bool) -> CreateSpec:
    """`v1` is `POST /sandboxes`: its own default timeout, and unsecured unless `secure` is true."""
    _refuse(body, _UNSUPPORTED)
    if body.flag("autoPauseMemory", default=True) is False:
        raise InvalidRequest(_NO_FILESYSTEM_ONLY.replace("memory out", "autoPauseMemory out"))
    network = body.object("network")
    secured = not v1 or body.flag("secure", default=False)
    inbound = network.flag("allowPublicTraffic", default=True)
    if not inbound and not secured:
        raise InvalidRequest("network.allowPublicTraffic=false needs secure=true")
    timeout = body.raw("timeout")
    if timeout is None:
        timeout = DEFAULT_TIMEOUT_V1_S if v1 else DEFAULT_TIMEOUT_S
    return CreateSpec(
        template=body.required_text("templateID"),
        policy=parse_egress(
            network, outbound=body.flag("allow_internet_access", default=True), inbound=inbound
        ),
        timeout_s=check_timeout(timeout),
        auto_pause=body.flag("autoPause", default=False),
        auto_resume=_auto_resume(body),
        secured=secured,
        mask_request_host=network.text("maskRequestHost"),
        metadata=body.text_map("metadata"),
        env=_environment(body),
    )


def parse_egress(network: Fields, *, outbound: bool, inbound: bool) -> NetworkPolicy:
    """The outbound half of a network object: what is left out is cleared."""
    _refuse(network, _UNSUPPORTED_NETWORK)
    return NetworkPolicy.parse(
        outbound=outbound,
        inbound=inbound,
        allow=network.texts("allowOut"),
        deny=network.texts("denyOut"),
    )


def check_timeout(timeout_s: object, *, what: str = "timeout") -> float:
    """A whole number of seconds from a request. InvalidRequest names what is wrong."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise InvalidRequest(f"{what} must be a number of seconds")
    if not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"{what} must be from 0 to {MAX_TIMEOUT_S} seconds")
    return float(timeout_s)


def refuse_memory_false(body: Fields) -> None:
    if body.flag("memory", default=True) is False:
        raise InvalidRequest(_NO_FILESYSTEM_ONLY)


def _auto_resume(body: Fields) -> bool:
    if isinstance(body.raw("autoResume"), bool):
        return body.flag("autoResume", default=False)
    return body.object("autoResume").flag("enabled", default=False)


def _environment(body: Fields) -> dict[str, str]:
    env = body.text_map("envVars")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"envVars: “{name}” is no valid name or value of a variable")
    return env


def _refuse(fields: Fields, names: tuple[str, ...]) -> None:
    for name in names:
        if fields.raw(name):
            raise Unsupported(f"{name} is not supported by this backend; leave it out")
