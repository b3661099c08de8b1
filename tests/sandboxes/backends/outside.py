"""Two web servers on the far side of this host: a network namespace of the tests' own.

Their addresses are documentation ones (RFC 5737), which look public to every rule.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sandboxes.testing import Outside, Target

__all__ = ["FIRST", "SECOND", "outside_servers"]

_GATEWAY = "198.51.100.1"
FIRST = Target(address="198.51.100.10", body="first")
SECOND = Target(address="198.51.100.20", body="second")
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
def outside_servers(tag: str) -> Iterator[Outside]:
    """`tag` (at most 8 characters) tells the namespace and the link from others on this host."""
    name, host_end = f"outside-{tag}", f"out{tag}"
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", host_end, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "address", "add", f"{_GATEWAY}/24", "dev", host_end)
        _run("ip", "link", "set", host_end, "up")
        for target in (FIRST, SECOND):
            _run("ip", "-n", name, "address", "add", f"{target.address}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "eth0", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "route", "add", "default", "via", _GATEWAY)
        with ExitStack() as stack:
            for target in (FIRST, SECOND):
                stack.enter_context(_served(name, target))
            yield Outside(first=FIRST, second=SECOND)
    finally:
        _run("ip", "netns", "delete", name)
        subprocess.run(["ip", "link", "delete", host_end], capture_output=True)


@contextmanager
def _served(namespace: str, target: Target) -> Iterator[None]:
    argv = [sys.executable, "-c", _SERVER, target.address, target.body]
    server = subprocess.Popen(["ip", "netns", "exec", namespace, *argv])
    try:
        deadline = time.monotonic() + 10
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
