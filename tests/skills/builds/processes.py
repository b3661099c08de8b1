"""Starting a driver: a process with a database, media and settings of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.sandboxes.sessions.world import RedisServer

__all__ = ["drive"]


def drive(driver: str, *arguments: object, folder: Path, redis: RedisServer) -> dict[str, object]:
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "DATABASE_URL": f"sqlite:///{folder}/driver.sqlite3",
        "REDIS_URL": f"unix://{redis.socket}",
        "SKILLYARD_DATA_DIR": str(folder),
        "SKILLYARD_SECRET_KEY": "only-for-a-driver-" + "0" * 40,
        "SKILLYARD_FIELD_KEYS": "VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA=",
        "SKILLYARD_LOG_LEVEL": "ERROR",
    }
    argv = [sys.executable, "-m", f"tests.skills.builds.{driver}"]
    done = subprocess.run([*argv, *map(str, arguments)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, object] = json.loads(done.stdout)
    return result
