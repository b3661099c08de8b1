"""Settings that several kinds of backend have in common, and dialling by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandboxes.registry import setting
from sandboxes.urlguard import UrlGuard, check_url
from sandboxes.wire.transport import Dial
from sandboxes.words import gettext_noop as _

__all__ = ["allow_private", "ca_pem", "guarded_dial", "optional_api_key", "template"]


def optional_api_key(help: str) -> Any:
    return setting(label=_("API key"), help=help, secret=True, identity=True, default="")


def template() -> Any:
    return setting(
        label=_("Base template"),
        help=_("Name or id of the template to start from."),
        default="base",
    )


def ca_pem() -> Any:
    return setting(
        label=_("CA certificate"),
        help=_(
            "PEM text of the CA that signed the server's certificate, if the system doesn't trust it."
        ),
        multiline=True,
        default="",
    )


def allow_private() -> Any:
    return setting(
        label=_("Allow private addresses"),
        help=_("Only for a server inside your own network."),
        identity=True,
        default=False,
    )


def guarded_dial(urls: Iterable[str], *, ca_pem: str, allow_private: bool) -> Dial:
    """For these URLs, of which each address is judged again on every connection. Raises UrlRefused for one
    whose text alone may not be called."""
    for url in urls:
        check_url(url, allow_private=allow_private)
    return Dial(ca_pem=ca_pem or None, guard=UrlGuard(allow_private=allow_private))
