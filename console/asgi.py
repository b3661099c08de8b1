"""The ASGI entry point: the gateway, the API, terminals, previews of ports, and Django's pages beside them."""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

pages = get_asgi_application()

from django.conf import settings  # noqa: E402 (needs the apps that are loaded above)
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: E402

from console.api.handler import ApiHandler  # noqa: E402
from console.fleet.runtime import close_shared_runtime  # noqa: E402
from console.gateway.app import GatewayApp, is_for_gateway  # noqa: E402
from console.web.preview.app import PreviewApp, is_preview  # noqa: E402
from console.web.terminal.app import TerminalApp, is_terminal  # noqa: E402

api = ApiHandler()
gateway = GatewayApp()
preview = PreviewApp()
terminal = TerminalApp()


async def _application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif is_for_gateway(scope):
        await gateway(scope, receive, send)
    elif is_preview(scope):
        await preview(scope, receive, send)
    elif is_terminal(scope):
        await terminal(scope, receive, send)
    elif scope["type"] == "http" and scope["path"].startswith("/api/"):
        await api(scope, receive, send)
    else:
        await pages(scope, receive, send)


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await api.aclose()
            await close_shared_runtime()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


application = ProxyHeadersMiddleware(_application, trusted_hosts=settings.TRUSTED_PROXIES)
"""Here and not in the server's settings, so that it holds however the server is started."""
