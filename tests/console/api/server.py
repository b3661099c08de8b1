"""The console on a real uvicorn, with a database of its own: `python -m tests.console.api.server`.

Prepares two tenants on the given sandboxd, prints one line of JSON (port, ids, keys), then serves.
Run through `start`, or by a bench.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Server", "environment", "start", "worker"]

CHECKOUT = Path(__file__).resolve().parents[3]
SCRIPT = """
import pathlib, sys
name = sys.argv[1] if len(sys.argv) > 1 else "world"
text = sys.stdin.read()
pathlib.Path("/workspace/output").mkdir(exist_ok=True)
pathlib.Path("/workspace/output/hello.txt").write_text(f"hello {name} {text}")
print(f"hello {name} {text}")
"""
SKILL = "---\nname: greeter\ndescription: Greets whoever is named.\n---\n# Greeter\n\nRun `scripts/greet.py`.\n"
ALL = ["view", "run", "operate", "build", "policy", "catalog", "manage", "audit"]


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    log: Path
    url: str
    facts: dict[str, Any]

    def headers(self, key: str = "all") -> dict[str, str]:
        return {"X-API-Key": self.facts["keys"][key]}

    def session(self, session_id: str) -> str:
        return f"/api/v1/spaces/{self.facts['space']}/sessions/{session_id}"


def environment(folder: Path, *, redis_socket: str, sandboxd_socket: str) -> dict[str, str]:
    """Of every process of one console."""
    return {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "SKILLYARD_DATA_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder / 'console.sqlite3'}",
        "REDIS_URL": f"unix://{redis_socket}",
        "SKILLYARD_SECRET_KEY": "only-for-tests-" * 4,
        "SKILLYARD_FIELD_KEYS": "VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA=",
        "SKILLYARD_LOG_LEVEL": "WARNING",
        "TESTED_SANDBOXD": sandboxd_socket,
        "PYTHONPATH": str(CHECKOUT),
    }


@contextmanager
def start(
    folder: Path, *, redis_socket: str, sandboxd_socket: str, **environ: str
) -> Iterator[Server]:
    log = folder / "web.log"
    settings = environment(folder, redis_socket=redis_socket, sandboxd_socket=sandboxd_socket)
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.console.api.server"],
            cwd=CHECKOUT,
            env={**os.environ, **settings, **environ},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("{"):
            process.kill()
            raise AssertionError(f"the console did not start:\n{line}{log.read_text()}")
        facts = json.loads(line)
        yield Server(process, log, f"http://127.0.0.1:{facts['port']}", facts)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@contextmanager
def again(
    first: Server, folder: Path, *, redis_socket: str, sandboxd_socket: str
) -> Iterator[Server]:
    """A second process on the rows of one that is dead."""
    with start(
        folder,
        redis_socket=redis_socket,
        sandboxd_socket=sandboxd_socket,
        TESTED_FACTS=json.dumps(first.facts),
    ) as server:
        yield server


@contextmanager
def worker(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One of the product's own, on what `environment` names."""
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "console", "worker", "--pool=threads"],
        cwd=CHECKOUT,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def prepare() -> dict[str, Any]:
    """Rows for the tests: a tenant with a space that serves a release, and a rival with the same. The tenant's
    backend may be another than the rival's (TESTED_BACKEND), and its space open both ways (TESTED_OPEN)."""
    from django.core.management import call_command

    from console.policies.models import NetworkPolicyRevision
    from console.tenants.keys import issue_key
    from skills.ports import SYSTEM
    from tests.console.api.world import grants_everything, make_tenant

    call_command("migrate", verbosity=0, interactive=False)
    socket = os.environ["TESTED_SANDBOXD"]
    backend = json.loads(os.environ.get("TESTED_BACKEND", "{}"))
    ours, rival = make_tenant("acme", socket, **backend), make_tenant("rival", socket)
    principal = grants_everything(SYSTEM)
    if os.environ.get("TESTED_OPEN"):
        NetworkPolicyRevision.objects.filter(space=ours).update(outbound=True, inbound=True)

    def key(owner: Any, scopes: list[str], **options: Any) -> str:
        return issue_key(
            principal=principal, tenant=owner.tenant, name="test", scopes=scopes, **options
        )[1]

    facts = {
        "tenant": ours.tenant_id,
        "space": ours.pk,
        "backend": ours.backend_id,
        "rival_space": rival.pk,
        "keys": {
            "all": key(ours, ALL),
            "run": key(ours, ["view", "run"], space=ours),
            "e2b": key(ours, ["run"], space=ours, kind="e2b"),
            "view": key(ours, ["view"]),
            "rival": key(rival, ALL),
        },
    }
    if os.environ.get("TESTED_SKILL"):
        from skills.package import UploadedFile
        from skills.services import add_package
        from tests.skills.world import install

        files = {"greeter/SKILL.md": SKILL, "greeter/scripts/greet.py": SCRIPT}
        version = add_package(
            tenant=ours.tenant,
            source=[UploadedFile(path, text.encode()) for path, text in files.items()],
            actor=SYSTEM,
        )
        build = install(ours, version)
        assert build.state == "succeeded", build.error
        facts["skill"] = version.skill_id
        facts["build"] = build.pk
        facts["release"] = build.release.pk
    return facts


def count_queries(path: Path) -> None:
    """From now on the file grows by one byte a statement."""
    from django.db.backends.signals import connection_created

    file = path.open("ab", buffering=0)

    def counted(execute: Any, sql: str, *rest: Any) -> Any:
        file.write(b".")
        return execute(sql, *rest)

    def watch(connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(counted)

    connection_created.connect(watch, weak=False)


def main() -> None:
    import socket

    import django
    import uvicorn

    django.setup()
    known = os.environ.get("TESTED_FACTS")
    facts = json.loads(known) if known else prepare()
    if queries := os.environ.get("TESTED_QUERIES"):
        facts["queries"] = queries
        count_queries(Path(queries))
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(json.dumps({**facts, "port": listening.getsockname()[1]}), flush=True)
    config = uvicorn.Config(
        "console.asgi:application",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
