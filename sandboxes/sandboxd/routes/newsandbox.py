"""The body of a create, read into what the service is asked for. What this daemon cannot do is
refused by name, never ignored."""

from __future__ import annotations

from sandboxes.errors import InvalidRequest, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.service import CreateSpec, check_timeout
from sandboxes.wire.messages import DEFAULT_TIMEOUT_S, DEFAULT_TIMEOUT_V1_S
from sandboxes.wire.server.bodies import Fields

__all__ = ["parse_egress", "parse_new_sandbox", "refuse_memory_false"]

_NO_FILESYSTEM_ONLY = (
    "This backend keeps the memory of a paused sandbox and cannot drop it; "
    "leave memory out or set it to true"
)
_UNSUPPORTED = ("volumeMounts", "iam")
_UNSUPPORTED_NETWORK = ("dnsServers", "egressProxy", "httpsPorts", "rules")


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
