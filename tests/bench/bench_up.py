"""How long `manage.py up` takes to its first page, on a data directory of its own; prints JSON last.

up_first_s       first run: database made and seeded, static files collected
up_second_s      median of three further runs (the aim: 5 s)
stop_s           median, from SIGTERM to the end
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-up-") as folder:
        Path(folder).chmod(0o755)
        runs = [one_run(Path(folder) / "data") for _ in range(4)]
    starts, stops = zip(*runs, strict=True)
    figures = {
        "up_first_s": round(starts[0], 2),
        "up_second_s": round(statistics.median(starts[1:]), 2),
        "stop_s": round(statistics.median(stops), 2),
    }
    print(json.dumps(figures))


def one_run(data: Path) -> tuple[float, float]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begun = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "manage.py",
            "up",
            "--no-template",
            "--data-dir",
            data,
            "--port",
            str(port),
        ],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith(("SKILLYARD_", "REDIS_"))},
        stdout=subprocess.DEVNULL,
    )
    try:
        while not answers(port):
            if process.poll() is not None:
                raise SystemExit(f"`manage.py up` ended with {process.returncode}.")
            time.sleep(0.02)
        took = time.monotonic() - begun
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        return took, time.monotonic() - begun
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether the first page comes; the socket accepts before the console serves, and then waits."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
