"""Put the skills' files in place: one tar each, streamed, owned by root."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from django.core.files import File

from skills.build.context import SCRATCH, BuildContext, Item, in_db
from skills.build.failures import BuildFailed
from skills.models import SKILLS_ROOT

__all__ = ["run"]

_CHUNK = 256 * 1024

_PLACE = f"""
set -eu
umask 022
root={SKILLS_ROOT}
mkdir -p "$root"
rm -rf -- "$root/$1"
mkdir -- "$root/$1"
tar -x -f "$2" -C "$root/$1" --no-same-owner --no-overwrite-dir
chown -R root:root -- "$root/$1"
rm -f -- "$2"
"""


async def run(context: BuildContext) -> None:
    await context.must(
        "sandbox_unfit",
        "Making the build's own folder",
        "/bin/sh",
        "-c",
        f"umask 077 && mkdir -p {SCRATCH} && chmod 0700 {SCRATCH} && mkdir -p -m 0755 {SKILLS_ROOT}",
        show=None,
    )
    for name in context.remove:
        context.log.say(f"Removing {name}")
        await context.must(
            "remove_failed",
            f"Removing {name}",
            "rm",
            "-rf",
            "--",
            f"{SKILLS_ROOT}/{name}",
            show=None,
        )
    for item in context.install:
        context.log.say(f"Uploading {item.name} ({item.version.size_bytes:,} bytes)")
        await _upload(context, item)


async def _upload(context: BuildContext, item: Item) -> None:
    path = f"{SCRATCH}/{item.version.digest}.tar"
    try:
        stream = await in_db(item.version.archive.open, "rb")
    except FileNotFoundError as error:
        raise BuildFailed(
            "package_missing",
            f"The stored package of {item.version} is missing; upload the skill again.",
        ) from error
    with stream:
        await context.write(path, _chunks(stream))
    await context.must(
        "upload_failed",
        f"Unpacking {item.name}",
        "/bin/sh",
        "-c",
        _PLACE,
        "place",
        item.name,
        path,
        show=None,
    )


async def _chunks(stream: File[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(stream.read, _CHUNK):
        yield chunk
