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
skill="{SKILLS_ROOT}/$1" archive=$2
shift 2
if test -d "$skill" && test ! -L "$skill"; then
  find "$skill" -mindepth 1 -maxdepth 1 "$@" -exec rm -rf -- {{}} +
else
  rm -rf -- "$skill"
  mkdir -- "$skill"
fi
tar -x -f "$archive" -C "$skill" --no-same-owner --no-overwrite-dir
rm -f -- "$archive"
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
        *(("!", "-name", ".venv") if item.name in context.kept_python else ()),
        *(("!", "-name", "node_modules") if item.name in context.kept_node else ()),
        show=None,
    )


async def _chunks(stream: File[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(stream.read, _CHUNK):
        yield chunk
