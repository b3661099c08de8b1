"""REST to one account, below the routes: sending, refusing, paging, reading JSON. Each call is sent once; what
comes back is either of the protocol or an error of ours."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.wire import failures
from sandboxes.wire.transport import Answer, Plane

__all__ = ["REQUEST_TIMEOUT_S", "SNAPSHOT_TIMEOUT_S", "RestPlane"]

REQUEST_TIMEOUT_S = 60.0
SNAPSHOT_TIMEOUT_S = 600.0
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_MAX_PAGES = 10_000


class RestPlane:
    """Safe for concurrent use; closed by whoever made the plane."""

    def __init__(self, plane: Plane, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._plane = plane
        self._timeout_s = request_timeout_s

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        about: str = "",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = SNAPSHOT_TIMEOUT_S,
    ) -> tuple[int, Mapping[str, str], Any]:
        """A call of a gateway's: status, headers and JSON, None for an empty body."""
        answer = await self._answer(
            op, method, path, body, about=about, params=params, headers=headers, timeout_s=timeout_s
        )
        parsed = self._parse(op, answer.body) if answer.body else None
        return answer.status, answer.headers, parsed

    def _path(self, op: str, sandbox_id: str) -> str:
        """The reference server takes letters and digits only; older ones had a hyphen too."""
        if not _SANDBOX_ID.fullmatch(sandbox_id):
            raise InvalidRequest(
                f"“{sandbox_id}” cannot be the id of a sandbox; ids hold letters, digits and hyphens.",
                provider=self._plane.service.provider,
                op=op,
            )
        return f"/sandboxes/{sandbox_id}"

    async def _send(
        self,
        op: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        about: str = "",
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        return await self._answer(
            op, method, path, body, about=about, params=params, timeout_s=timeout_s
        )

    async def _answer(
        self,
        op: str,
        method: str,
        path: str,
        body: Any,
        *,
        about: str,
        params: Mapping[str, str] | None,
        timeout_s: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        answer = await self._plane.request(
            op,
            method,
            path,
            json=body,
            params=params,
            headers=headers,
            timeout_s=timeout_s or self._timeout_s,
        )
        if not answer.ok:
            raise self._refusal(op, answer, about)
        return answer

    def _refusal(self, op: str, answer: Answer, about: str) -> SandboxError:
        """The error behind an answer that is no success; servers with codes of their own override it."""
        return failures.from_answer(
            self._plane.service, op, answer.status, answer.headers, answer.body, about=about
        )

    async def _json(
        self,
        op: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        about: str = "",
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        answer = await self._send(
            op, method, path, body, about=about, params=params, timeout_s=timeout_s
        )
        return self._parse(op, answer.body)

    async def _pages(
        self, op: str, path: str, params: Mapping[str, str], *, key: str
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Every item once. Ends on a missing, empty or repeated token, and on a page with nothing
        new: servers exist that ignore the token, or start over on an empty one."""
        seen_items: set[str] = set()
        seen_tokens: set[str] = set()
        query = dict(params)
        for _ in range(_MAX_PAGES):
            answer = await self._send(op, "GET", path, params=query)
            fresh = [
                item
                for item in self._array(op, self._parse(op, answer.body))
                if self.object(op, item).get(key) not in seen_items
            ]
            for item in fresh:
                seen_items.add(str(item.get(key)))
                yield item
            token = answer.headers.get("x-next-token", "")
            if not token or token in seen_tokens or not fresh:
                return
            seen_tokens.add(token)
            query["nextToken"] = token

    def _parse(self, op: str, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError:
            raise failures.not_the_protocol(self._plane.service, op, 200, content) from None

    def object(self, op: str, reply: Any) -> Mapping[str, Any]:
        """Unavailable, as from no server of the protocol, for anything but a JSON object."""
        if not isinstance(reply, dict):
            raise self._odd(op, reply)
        return reply

    def _array(self, op: str, reply: Any) -> list[Any]:
        if not isinstance(reply, list):
            raise self._odd(op, reply)
        return reply

    def _odd(self, op: str, reply: Any) -> SandboxError:
        return failures.not_the_protocol(
            self._plane.service, op, 200, json.dumps(reply, default=str).encode()
        )

    def _required(self, op: str, item: Mapping[str, Any], key: str) -> str:
        value = item.get(key)
        if not isinstance(value, str) or not value:
            raise self._odd(op, item)
        return value
