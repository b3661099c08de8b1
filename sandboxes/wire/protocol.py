"""A backend's own server of the protocol, reached as it is: what a gateway relays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sandboxes.client import ByteStream, ProtocolAccess
from sandboxes.types import CreateRequest, Endpoint, Sandbox
from sandboxes.wire.bodies import new_sandbox
from sandboxes.wire.client import WireClient
from sandboxes.wire.messages import DEFAULT_TIMEOUT_V1_S, ENVD_PORT, TRAFFIC_TOKEN_HEADER
from sandboxes.wire.streams import open_stream

__all__ = ["WireProtocol"]


class WireProtocol(ProtocolAccess):
    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    async def create(
        self,
        request: CreateRequest,
        *,
        auto_resume: bool,
        mask_request_host: str | None = None,
        idempotency_key: str | None = None,
    ) -> Mapping[str, Any]:
        control = self._wire.control
        body = new_sandbox(request, routes=control.routes)
        body["autoResume"] = {"enabled": auto_resume}
        if mask_request_host is not None:
            body["network"]["maskRequestHost"] = mask_request_host
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        path = "/v2/sandboxes" if control.routes == "v2" else "/sandboxes"
        about = f"“{request.template}”"
        _, _, reply = await control.call("create", "POST", path, body, about=about, headers=headers)
        return control.object("create", reply)

    async def connect(
        self, sandbox_id: str, *, timeout_s: int | None
    ) -> tuple[bool, Mapping[str, Any]]:
        control = self._wire.control
        body: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        if control.routes == "v1":
            body.setdefault("timeout", DEFAULT_TIMEOUT_V1_S)
        prefix = "/v2" if control.routes == "v2" else ""
        status, _, reply = await control.call(
            "connect",
            "POST",
            f"{prefix}/sandboxes/{sandbox_id}/connect",
            body,
            about=f"sandbox {sandbox_id}",
        )
        return status == 201, control.object("connect", reply)

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        about: str = "",
    ) -> tuple[Mapping[str, str], Any]:
        _, headers, reply = await self._wire.control.call(
            op, method, path, body, params=params, about=about
        )
        return headers, reply

    async def dial(self, sandbox: Sandbox, port: int) -> tuple[Endpoint, ByteStream]:
        settings = self._wire.settings
        endpoint = settings.addressing.dialled(sandbox, port)
        if port == ENVD_PORT and settings.send_traffic_token and sandbox.traffic_token:
            headers = {**endpoint.headers, TRAFFIC_TOKEN_HEADER: sandbox.traffic_token}
            endpoint = replace(endpoint, headers=headers)
        return endpoint, await open_stream(settings.data_dial, endpoint.url)
