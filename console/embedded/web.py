"""Bring the database up to date, then serve the console: `python -m console.embedded.web FD`.

FD is a listening socket that the supervisor opened. It outlives this process, so that connections
wait through a restart instead of failing. One process does both because loading Django is most of
the time that either takes.
"""

from __future__ import annotations

import socket
import sys

import django
import uvicorn
from django.core.management import call_command

__all__ = ["main"]


def main(descriptor: int) -> None:
    django.setup()
    call_command("prepare")
    config = uvicorn.Config(
        "console.asgi:application",
        access_log=False,
        server_header=False,
        # The application itself does that, as SKILLYARD_TRUSTED_PROXIES says.
        proxy_headers=False,
        # Longer than clients keep an idle connection, or a call would now and then meet a closing one.
        timeout_keep_alive=75,
        # Live logs never end by themselves.
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
