"""Files that exist only for processes in the sandbox: /proc and /sys, read by one of them."""

from __future__ import annotations

from starlette.responses import Response

from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.sandboxd.engines.base import Engine, ProcessSpec

__all__ = ["KERNEL_FILES", "read_kernel_file"]

KERNEL_FILES = ("/proc/", "/sys/")
_MAX_BYTES = 8 * 1024 * 1024


async def read_kernel_file(engine: Engine, sandbox_id: str, path: str, user: str) -> Response:
    """NotFound if the user's own processes cannot read it; InvalidRequest if it never ends."""
    process = await engine.spawn(
        sandbox_id, ProcessSpec(argv=["cat", "--", path], user=user, cwd="/")
    )
    content = bytearray()
    async for stream, data in process.output():
        if stream == "stdout":
            content += data
        if len(content) > _MAX_BYTES:
            await process.kill_tree()
            raise InvalidRequest(f"path '{path}' gives more than {_MAX_BYTES} bytes; run a command")
    if (await process.wait()).code != 0:
        raise NotFound(f"path '{path}' does not exist or cannot be read")
    return Response(bytes(content), media_type="application/octet-stream")
