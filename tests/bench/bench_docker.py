"""Times the `docker` backend beside the bare Docker API, `local`, and (if given) llm-sandbox.

    python -m tests.bench.bench_docker [--rounds N] [--llm-python PYTHON]

`--llm-python` is the interpreter of a throw-away environment with `llm-sandbox[docker]` in it. All
stand on one Docker engine of the bench's own and one image, and take turns within each round, so
that the machine's other load meets them alike. Prints one JSON object; asserts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiodocker

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.network import CLOSED
from sandboxes.sandboxd.engines.base import Limits
from sandboxes.sandboxd.engines.docker import container
from sandboxes.sandboxd.engines.docker.records import ContainerRecord
from sandboxes.sandboxd.engines.runc.records import Phase
from sandboxes.types import CreateRequest, ExecRequest, Sandbox, TimeoutPolicy
from tests.sandboxes import daemon as daemons
from tests.sandboxes import dockerd as dockerds

TRUE = ExecRequest(argv=("true",), user="root")
CONCURRENCY = 8
EXECS_A_ROUND = 5
_FILL = "head -c 10000000 /dev/urandom > /opt/data"

# Talks in lines: a word and a number in, the milliseconds of each step out.
_LLM_WORKER = """
import sys, time, json, threading, docker
from llm_sandbox import SandboxSession
client = docker.DockerClient(base_url=sys.argv[1])
options = {"command": ["tail", "-f", "/dev/null"], "init": True, "network_mode": "none", "mem_limit": "2g", "pids_limit": 512}

def ms(since): return (time.perf_counter() - since) * 1000

def cycle(out):
    begun = time.perf_counter()
    session = SandboxSession(client=client, image=sys.argv[2], lang="python", keep_template=True,
        runtime_configs=dict(options), skip_environment_setup=True, workdir="/tmp", verbose=False)
    session.open()
    assert session.execute_command("true").exit_code == 0
    out["first_exec"].append(ms(begun))
    for _ in range(EXECS):
        begun = time.perf_counter()
        session.execute_command("true")
        out["exec"].append(ms(begun))
    begun = time.perf_counter()
    session.close()
    out["delete"].append(ms(begun))

for line in sys.stdin:
    out = {"first_exec": [], "exec": [], "delete": []}
    threads = [threading.Thread(target=cycle, args=(out,)) for _ in range(int(line))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps(out), flush=True)
""".replace("EXECS", str(EXECS_A_ROUND))

Times = dict[str, list[float]]


class Contestant(Protocol):
    async def cycle(self, times: Times) -> None: ...


class Ours:
    """Through the contract: wire, daemon and engine."""

    def __init__(self, client: SandboxClient, template: str) -> None:
        self.client = client
        self.template = template

    async def create(self) -> Sandbox:
        return await self.client.create(
            CreateRequest(
                template=self.template, network=CLOSED, timeout=TimeoutPolicy(timeout_s=600)
            )
        )

    async def cycle(self, times: Times) -> None:
        begun = time.perf_counter()
        box = await self.create()
        times["create"].append(ms(begun))
        await self.client.run(box, TRUE)
        times["first_exec"].append(ms(begun))
        for _ in range(EXECS_A_ROUND):
            started = time.perf_counter()
            await self.client.run(box, TRUE)
            times["exec"].append(ms(started))
        ended = time.perf_counter()
        await self.client.delete(box.id)
        times["delete"].append(ms(ended))
        times["cycle"].append(ms(begun))

    async def snapshot(self, times: Times) -> None:
        assert self.client.snapshots is not None
        box = await self.create()
        fill = ExecRequest(argv=("sh", "-c", _FILL), user="root")
        assert (await self.client.run(box, fill)).ok
        begun = time.perf_counter()
        taken = await self.client.snapshots.create(box.id, name=f"bench-{time.time_ns()}")
        times["snapshot"].append(ms(begun))
        await self.client.delete(box.id)
        await self.client.snapshots.delete(taken.id)


class Bare:
    """The same container by the engine's API alone."""

    def __init__(self, docker: aiodocker.Docker, image: str) -> None:
        self.docker = docker
        record = ContainerRecord(
            id="bare",
            image="",
            image_id=image,
            template="",
            env={},
            network=CLOSED,
            limits=Limits(),
            created_at=0,
            phase=Phase.CREATING,
        )
        self.config = container.config(
            record, key="bench", network={"NetworkMode": "none"}, cgroup_parent=""
        )

    async def create(self) -> Any:
        made = await self.docker.containers.create(self.config)
        await made.start()
        return made

    async def run(self, made: Any, *argv: str) -> None:
        execution = await made.exec(cmd=list(argv), user="root")
        async with execution.start(detach=False) as stream:
            while await stream.read_out() is not None:
                continue
        assert (await execution.inspect())["ExitCode"] == 0

    async def cycle(self, times: Times) -> None:
        begun = time.perf_counter()
        made = await self.create()
        times["create"].append(ms(begun))
        await self.run(made, "true")
        times["first_exec"].append(ms(begun))
        for _ in range(EXECS_A_ROUND):
            started = time.perf_counter()
            await self.run(made, "true")
            times["exec"].append(ms(started))
        ended = time.perf_counter()
        await made.delete(force=True, v=True)
        times["delete"].append(ms(ended))
        times["cycle"].append(ms(begun))

    async def snapshot(self, times: Times) -> None:
        made = await self.create()
        await self.run(made, "sh", "-c", _FILL)
        begun = time.perf_counter()
        image = await made.commit(repository="bench", tag="bare")
        times["snapshot"].append(ms(begun))
        await made.delete(force=True, v=True)
        await self.docker.images.delete(image["Id"], force=True)


class LlmSandbox:
    def __init__(self, python: str, url: str, image: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", _LLM_WORKER, url, image],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    async def run(self, times: Times, concurrency: int) -> None:
        found = await asyncio.to_thread(self._ask, concurrency)
        for name, values in found.items():
            times[name] += values

    def _ask(self, concurrency: int) -> dict[str, list[float]]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{concurrency}\n")
        self.process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self.process.stdout.readline())
        return found

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


async def measure(
    docker_client: SandboxClient,
    local_client: SandboxClient,
    url: str,
    *,
    rounds: int,
    llm_python: str | None,
) -> dict[str, Any]:
    template = daemons.base_template()
    async with aiodocker.Docker(url=url) as docker:
        ours, local = Ours(docker_client, template), Ours(local_client, template)
        warm: Times = defaultdict(list)
        await ours.cycle(warm)  # loads the image
        image = (await docker.images.inspect(f"skillyard-template:{template}"))["Id"]
        bare = Bare(docker, image)
        llm = LlmSandbox(llm_python, url, f"skillyard-template:{template}") if llm_python else None
        all_times: dict[str, Times] = defaultdict(lambda: defaultdict(list))
        contestants: dict[str, Contestant] = {"docker": ours, "bare": bare, "local": local}
        try:
            for contestant in contestants.values():
                await contestant.cycle(warm)
            if llm:
                await llm.run(warm, 1)
            for _ in range(rounds):
                for name, contestant in contestants.items():
                    await contestant.cycle(all_times[name])
                if llm:
                    await llm.run(all_times["llm_sandbox"], 1)
            for _ in range(max(1, rounds // 5)):
                for name, contestant in contestants.items():
                    at_once = all_times[f"{name}_at_{CONCURRENCY}"]
                    await asyncio.gather(*(contestant.cycle(at_once) for _ in range(CONCURRENCY)))
                if llm:
                    await llm.run(all_times[f"llm_sandbox_at_{CONCURRENCY}"], CONCURRENCY)
            for _ in range(max(3, rounds // 3)):
                await ours.snapshot(all_times["docker"])
                await bare.snapshot(all_times["bare"])
        finally:
            if llm:
                llm.stop()
    return summary(all_times, rounds)


def summary(all_times: dict[str, Times], rounds: int) -> dict[str, Any]:
    medians = {
        who: {f"{step}_ms": round(statistics.median(values), 1) for step, values in times.items()}
        for who, times in all_times.items()
    }
    figures: dict[str, Any] = {"rounds": rounds, **medians}
    steps = ("create", "first_exec", "exec", "delete", "cycle", "snapshot")
    figures["docker_over_bare"] = {
        step: ratio(medians["docker"], medians["bare"], step) for step in steps
    }
    for suffix in ("", f"_at_{CONCURRENCY}"):
        theirs = medians.get(f"llm_sandbox{suffix}")
        if theirs:
            figures[f"llm_sandbox_over_ours{suffix}"] = {
                f"{who}_{step}": ratio(theirs, medians[f"{who}{suffix}"], step)
                for who in ("docker", "local")
                for step in ("first_exec", "exec", "delete")
            }
    return figures


def ratio(one: dict[str, float], other: dict[str, float], step: str) -> float:
    return round(one[f"{step}_ms"] / other[f"{step}_ms"], 2)


@contextlib.asynccontextmanager
async def clients(docker_socket: str, local_socket: str) -> AsyncIterator[list[SandboxClient]]:
    async with (
        await registry.open_client("docker", {"socket": docker_socket}) as docker,
        await registry.open_client("local", {"socket": local_socket}) as local,
    ):
        yield [docker, local]


async def run(dockerd: dockerds.Dockerd, args: argparse.Namespace) -> dict[str, Any]:
    options = ("--engine", "docker", "--docker-host", dockerd.url)
    with daemons.start(options=options) as ours, daemons.start() as local:
        async with clients(str(ours.socket), str(local.socket)) as (docker_client, local_client):
            return await measure(
                docker_client,
                local_client,
                dockerd.url,
                rounds=args.rounds,
                llm_python=args.llm_python,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="Times the docker backend.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--llm-python",
        default=os.environ.get("BENCH_LLM_PYTHON"),
        help="of an environment with llm-sandbox[docker]",
    )
    args = parser.parse_args()
    if reason := daemons.why_not() or dockerds.why_not():
        sys.stderr.write(f"This benchmark {reason}.\n")
        return 1
    with dockerds.start() as dockerd:
        figures = asyncio.run(run(dockerd, args))
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
