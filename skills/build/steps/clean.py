"""Remove what a session must not find: caches, downloads, and whatever checks left in the workspace."""

from __future__ import annotations

from skills.build.context import SCRATCH, BuildContext
from skills.build.failures import BuildFailed

__all__ = ["run"]

_CLEAN = f"""
set -eu
rm -rf {SCRATCH}
if command -v apt-get >/dev/null; then
  apt-get clean || true
  rm -rf /var/lib/apt/lists/*
fi
find /tmp /var/tmp -xdev -mindepth 1 -delete
find /workspace -xdev -mindepth 1 -delete
rm -rf /root/.npm /root/.cache /home/user/.npm /home/user/.cache
install -d -m 0775 -o user -g user /workspace /workspace/input /workspace/output
"""


async def run(context: BuildContext) -> None:
    await context.must(
        "clean_failed", "Cleaning up", "/bin/sh", "-c", _CLEAN, user="root", cwd="/", show=None
    )
    used = await context.ask("du", "-sxB1", "/")
    size = used.stdout.split()[:1]
    if not size or not size[0].isdigit():
        raise BuildFailed("sandbox_unfit", "The size of the result can't be measured (du failed).")
    size_bytes, limit = int(size[0]), context.settings.max_bytes
    context.log.say(f"The result has {size_bytes / 2**20:,.0f} MiB, its base included.")
    if size_bytes > limit:
        raise BuildFailed(
            "too_large",
            f"The result has {size_bytes:,} bytes; at most {limit:,} are allowed: install less, or raise "
            "SKILLYARD_BUILD_MAX_BYTES.",
        )
