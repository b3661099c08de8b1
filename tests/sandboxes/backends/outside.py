"""Two web servers on the far side of this host: a network namespace of the tests' own.

Their addresses are documentation ones (RFC 5737), which look public to every rule.
"""

from __future__ import annotations

import ipaddress
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxes.testing import Outside, Target

__all__ = ["outside_servers"]

_NETWORKS = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
_VETH = ("type", "veth", "peer", "name", "eth0")
_SERVER = """
import http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())

    def log_message(self, *args): pass

# Not HTTPServer: it would look its own name up, and there is no DNS here.
socketserver.ThreadingTCPServer((sys.argv[1], 80), Handler).serve_forever()
"""


@contextmanager
def outside_servers(*, names: tuple[str, str] | None = None) -> Iterator[Outside]:
    """`names` are what something else makes resolve to the two."""
    tag = secrets.token_hex(4)
    namespace, host_end = f"outside-{tag}", f"out{tag}"
    network = _free_network()
    gateway, one, two = (str(network[number]) for number in (1, 2, 3))
    first_name, second_name = names or (None, None)
    first = Target(address=one, body="first", name=first_name)
    second = Target(address=two, body="second", name=second_name)
    _run("ip", "netns", "add", namespace)
    try:
        _run("ip", "link", "add", host_end, *_VETH, "netns", namespace)
        _run("ip", "address", "add", f"{gateway}/28", "dev", host_end)
        _run("ip", "link", "set", host_end, "up")
        for address in (one, two):
            _run("ip", "-n", namespace, "address", "add", f"{address}/28", "dev", "eth0")
        _run("ip", "-n", namespace, "link", "set", "eth0", "up")
        _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", namespace, "route", "add", "default", "via", gateway)
        with _served(namespace, first), _served(namespace, second):
            yield Outside(first=first, second=second)
    finally:
        _run("ip", "netns", "delete", namespace)
        subprocess.run(["ip", "link", "delete", host_end], capture_output=True)


def _free_network() -> ipaddress.IPv4Network:
    """One that no other run of these tests has on this host."""
    taken = subprocess.run(["ip", "-4", "address"], capture_output=True, check=True).stdout.decode()
    blocks = [
        block for net in _NETWORKS for block in ipaddress.IPv4Network(net).subnets(new_prefix=28)
    ]
    return secrets.choice([block for block in blocks if f" {block[1]}/" not in taken])


@contextmanager
def _served(namespace: str, target: Target) -> Iterator[None]:
    argv = [sys.executable, "-c", _SERVER, target.address, target.body]
    server = subprocess.Popen(["ip", "netns", "exec", namespace, *argv])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(target.url(), timeout=1):  # noqa: S310
                    break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
