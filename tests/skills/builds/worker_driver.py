"""Run by test_worker.py as a process of its own: real Celery workers, one of them killed, a real sandboxd.

Prints one JSON object: the states of the builds, in order of asking, and how long each part took.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(socket: str) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from console.tenants.models import Space
    from skills import services
    from skills.models import Build, BuildLogLine, Promotion
    from skills.plan import StepKind
    from tests.skills.world import ACTOR, add_skill, make_space

    space = make_space("local", socket=socket)
    slow = add_skill(space, "slow", steps={StepKind.COMMAND: ["echo working; sleep 3"]})
    endless = add_skill(space, "endless", steps={StepKind.COMMAND: ["echo endless; sleep 600"]})

    def state(build: Any) -> str:
        return Build.objects.values_list("state", flat=True).get(pk=build.pk)

    def logged(text: str) -> Callable[[], bool]:
        return lambda: BuildLogLine.objects.filter(text=text).exists()

    worker = start_worker()
    first = services.install(space=space, version=slow, actor=ACTOR)
    second = services.install(space=space, version=endless, actor=ACTOR)
    wait(logged("working"), worker)
    queued = state(second)
    wait(logged("endless"), worker)
    begun = time.monotonic()
    services.cancel_build(build=Build.objects.get(pk=second.pk), actor=ACTOR)
    wait(lambda: state(second) == "cancelled", worker)
    cancelled_s = time.monotonic() - begun
    told = Promotion.objects.filter(space=space, sessions_told_at=None).count()
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)
    json.dump(
        {
            "while_first_ran": queued,
            "states": [state(first), state(second)],
            "cancelled_s": round(cancelled_s, 2),
            "untold": told,
            "serving": Space.objects.get(pk=space.pk).current_release.generation,
        },
        sys.stdout,
    )


def start_worker() -> subprocess.Popen[bytes]:
    argv = ["celery", "-A", "console", "worker", "-P", "threads", "-c", "4", "-l", "WARNING"]
    with Path(os.environ["SKILLYARD_DATA_DIR"], "worker.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", *argv], stdout=log, stderr=log)


def wait(condition: Callable[[], bool], worker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline or worker.poll() is not None:
            worker.kill()
            raise SystemExit(Path(os.environ["SKILLYARD_DATA_DIR"], "worker.log").read_text())
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
