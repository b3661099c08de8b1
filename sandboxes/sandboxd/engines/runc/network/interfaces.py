"""Interfaces of the calling thread's namespace, set by ioctl: see netdevice(7) and route(7).

A thousandth of the time of starting `ip`, for the few settings that a new sandbox needs.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

__all__ = ["add_default_route", "bring_up", "set_address"]

_SIOCADDRT = 0x890B
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_IFF_UP = 1
_RTF_UP, _RTF_GATEWAY = 1, 2

_ANY = ipaddress.IPv4Address(0)


def bring_up(name: str) -> None:
    """Raises OSError, as all here do."""
    request = struct.pack("16sH22x", name.encode(), 0)
    with _control() as control:
        reply = fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", reply, 16)
        request = struct.pack("16sH22x", name.encode(), flags | _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def set_address(name: str, interface: ipaddress.IPv4Interface) -> None:
    with _control() as control:
        for call, value in (
            (_SIOCSIFADDR, interface.ip),
            (_SIOCSIFNETMASK, interface.netmask),
        ):
            fcntl.ioctl(control, call, struct.pack("16s16s8x", name.encode(), _address(value)))


def add_default_route(gateway: ipaddress.IPv4Address) -> None:
    # struct rtentry: padding, destination, gateway, mask, flags, and zeroes to its end.
    request = struct.pack(
        "@L16s16s16sH62x",
        0,
        _address(_ANY),
        _address(gateway),
        _address(_ANY),
        _RTF_UP | _RTF_GATEWAY,
    )
    with _control() as control:
        fcntl.ioctl(control, _SIOCADDRT, request)


def _address(address: ipaddress.IPv4Address) -> bytes:
    """struct sockaddr_in"""
    return struct.pack("HH4s8x", socket.AF_INET, 0, address.packed)


def _control() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
