"""Serve the console on a listening socket that the supervisor opened: `python -m console.embedded.web FD`.

The socket outlives this process, so that connections wait through a restart instead of failing.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

__all__ = ["main"]


def main(descriptor: int) -> None:
    config = uvicorn.Config(
        "console.asgi:application",
        access_log=False,
        server_header=False,
        # Live logs never end by themselves.
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
