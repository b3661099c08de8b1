"""Write down what was really installed, for the ledger and for the sandbox's own manifest."""

from __future__ import annotations

import json
from typing import Any

from skills.build.context import BuildContext, Item
from skills.build.failures import BuildFailed
from skills.models import SKILLS_ROOT
from skills.resolve import parse_apt, parse_npm, parse_pip

__all__ = ["run"]

_LIST_PIP = """
import importlib.metadata, json, sys
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions(path=sys.argv[1:])}
print(json.dumps(found))
"""


async def run(context: BuildContext) -> None:
    packages: dict[str, Any] = {"pip": {}, "npm": {}, "apt": await _apt(context)}
    for item in context.items:
        if pip := await _pip(context, item):
            packages["pip"][item.name] = pip
        if npm := await _npm(context, item):
            packages["npm"][item.name] = npm
    context.packages = packages
    context.sizes = await _sizes(context)
    await _write_manifest(context)
    count = sum(len(found) for kind in ("pip", "npm") for found in packages[kind].values())
    context.log.say(
        f"Recorded {count} Python and Node packages and {len(packages['apt'])} of Debian."
    )


async def _apt(context: BuildContext) -> dict[str, str]:
    result = await context.ask(
        "dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\n"
    )
    # A base without dpkg has no Debian packages to list.
    return parse_apt(result.stdout.decode()) if result.ok else {}


async def _pip(context: BuildContext, item: Item) -> dict[str, str]:
    script = 'test -d "$1/.venv" || exit 0; exec "$1/.venv/bin/python" -I -c "$2" "$1"/.venv/lib/python3*/site-packages'
    return parse_pip(await _said(context, item, script, _LIST_PIP))


async def _npm(context: BuildContext, item: Item) -> dict[str, str]:
    script = 'test -f "$1/node_modules/.package-lock.json" || exit 0; exec cat "$1/node_modules/.package-lock.json"'
    return parse_npm(await _said(context, item, script))


async def _said(context: BuildContext, item: Item, script: str, *args: str) -> str:
    result = await context.ask("/bin/sh", "-c", script, "list", item.path, *args)
    if not result.ok:
        raise BuildFailed(
            "record_failed",
            f"The packages of {item.name} can't be listed: {result.stderr.decode(errors='replace')[-300:]}",
        )
    return result.stdout.decode()


async def _sizes(context: BuildContext) -> dict[str, int]:
    result = await context.ask("du", "-sB1", "--", *(item.path for item in context.items))
    sizes: dict[str, int] = {}
    for line in result.stdout.decode().splitlines():
        size, _, path = line.partition("\t")
        sizes[path.rpartition("/")[2]] = int(size)
    return sizes


async def _write_manifest(context: BuildContext) -> None:
    """What the sandbox itself says that it carries, in WeKnora's form."""
    skills = [
        {
            "id": item.skill_id,
            "name": item.name,
            "version": item.version.label or str(item.version.number),
            "sha256": item.version.digest,
        }
        for item in context.items
    ]
    await context.write(
        f"{SKILLS_ROOT}/.manifest.json", json.dumps({"skills": skills}, indent=1).encode()
    )
