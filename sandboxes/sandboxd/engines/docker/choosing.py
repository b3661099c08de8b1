"""Which way into the containers of an engine is open: through this host's kernel, or its API alone."""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

from sandboxes.sandboxd.engines.docker.api import Api, DockerHost
from sandboxes.sandboxd.engines.docker.local import LocalReach
from sandboxes.sandboxd.engines.docker.reach import Reach
from sandboxes.sandboxd.engines.docker.records import Paths
from sandboxes.sandboxd.engines.docker.remote import RemoteReach

__all__ = ["choose_reach"]

_log = logging.getLogger(__name__)

_ENTERABLE = ("runc", "crun")
"""Runtimes whose containers are processes of the host's kernel."""


def choose_reach(
    api: Api, host: DockerHost, info: Mapping[str, Any], *, paths: Paths, key: str
) -> Reach:
    """`info` is what the engine says of itself."""
    if why := _why_not_local(host, info):
        _log.info("containers are reached through Docker's API alone: %s", why)
        return RemoteReach(api, key=key)
    # A profile of these is put on a command by Docker alone.
    profiled = has_option(info, "apparmor") or has_option(info, "selinux")
    return LocalReach(
        paths, key=key, mapped=has_option(info, "userns"), exec_by=api if profiled else None
    )


def _why_not_local(host: DockerHost, info: Mapping[str, Any]) -> str:
    """Why containers can't be entered through this host's kernel; empty if they can."""
    if host.socket is None:
        return f"{host.url} is another machine's"
    if os.geteuid() != 0:
        return "sandboxd does not run as root"
    if (info["KernelVersion"], info["Name"]) != (platform.release(), socket.gethostname()):
        return f"Docker at {host.url} runs in a machine of its own"
    if has_option(info, "rootless"):
        return f"Docker at {host.url} does not run as root"
    if info["DefaultRuntime"] not in _ENTERABLE:
        return f"Docker's runtime {info['DefaultRuntime']} keeps its processes to itself"
    return ""


def has_option(info: Mapping[str, Any], name: str) -> bool:
    options = info.get("SecurityOptions") or []
    return any(f"name={name}" in option.split(",") for option in options)
