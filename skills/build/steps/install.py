"""Install what the skills need, as root: Debian packages into the image, Python packages into each
skill's own .venv, Node packages into its own node_modules, then the plan's commands."""

from __future__ import annotations

from shlex import quote

from packaging.requirements import Requirement

from sandboxes.types import ExecRequest
from skills.build.context import SCRATCH, BuildContext, Item
from skills.plan import StepKind

__all__ = ["ENV", "run", "skill_path"]

ENV = {
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/root",
    "UV_CACHE_DIR": f"{SCRATCH}/uv",
    # Within one file system a package of two skills is stored once.
    "UV_LINK_MODE": "hardlink",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "npm_config_cache": f"{SCRATCH}/npm",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "npm_config_yes": "true",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Only what is not so yet: to touch a file of the release below would copy it into this one.
_CLOSE = r"""
set -e
find "$1" \( ! -user root -o ! -group root \) -exec chown -h root:root -- {} +
find "$1" ! -type l \( -perm /022 -o ! -perm -444 -o -perm /111 ! -perm -111 -o -type d ! -perm -111 \) \
  -exec chmod go-w,a+rX -- {} +
"""


def skill_path(item: Item) -> str:
    """PATH of the skill's own commands and checks."""
    return f"{item.path}/.venv/bin:{item.path}/node_modules/.bin:{_PATH}"


async def run(context: BuildContext) -> None:
    await _install_apt(context)
    for item in context.install:
        await _install_python(context, item)
        await _install_node(context, item)
        await _run_commands(context, item)
        await context.must(
            "install_failed",
            f"Closing {item.name} against writing",
            "/bin/sh",
            "-c",
            _CLOSE,
            "close",
            item.path,
            show=None,
        )


async def _install_apt(context: BuildContext) -> None:
    wanted = dict.fromkeys(
        name for item in context.install for name in item.plan.items(StepKind.APT)
    )
    if not wanted:
        return
    await context.must(
        "apt_failed",
        "apt-get update",
        "apt-get",
        "update",
        "-q",
        "-o",
        "Acquire::Retries=3",
        env=ENV,
    )
    await context.must(
        "apt_failed",
        "Installing Debian packages",
        *("apt-get", "install", "-q", "-y", "--no-install-recommends"),
        *("-o", "Dpkg::Use-Pty=0", "-o", "Acquire::Retries=3", "--", *wanted),
        env=ENV,
    )


async def _install_python(context: BuildContext, item: Item) -> None:
    wanted = item.plan.items(StepKind.PIP)
    if not wanted:
        return
    venv = f"{item.path}/.venv"
    if item.name in context.kept_python:
        context.log.say(f"{item.name} needs the same Python packages as before: they are kept.")
        return
    await context.must(
        "pip_failed",
        f"Making the virtual environment of {item.name}",
        *("uv", "venv", "--quiet", "--clear", "--python", "/usr/bin/python3", venv),
        env=ENV,
    )
    # Requirements travel in a file, so that none of them can be read as an option.
    listed = f"{SCRATCH}/{item.version.digest}.requirements.txt"
    await context.write(listed, "".join(f"{line}\n" for line in wanted).encode())
    await context.must(
        "pip_failed",
        f"Installing the Python packages of {item.name}",
        *("uv", "pip", "install", "--python", f"{venv}/bin/python", "-r", listed),
        env=ENV,
        show=f"uv pip install {' '.join(str(Requirement(line)) for line in wanted)}",
    )
    # The session's user can't write .pyc files into the skill: without this each run compiles anew. Suites
    # of tests are left out: they are the most of it and nobody imports them. A package may well carry files
    # for another Python, so the exit code says nothing.
    await context.run(
        *(f"{venv}/bin/python", "-m", "compileall", "-q", "-q", "-j", "0"),
        *("-x", r"[/\\]tests[/\\]", f"{venv}/lib"),
        env=ENV,
        show="python -m compileall",
    )


async def _install_node(context: BuildContext, item: Item) -> None:
    wanted = item.plan.items(StepKind.NPM)
    if not wanted:
        return
    if item.name in context.kept_node:
        context.log.say(f"{item.name} needs the same Node packages as before: they are kept.")
        return
    await context.must(
        "npm_failed",
        f"Installing the Node packages of {item.name}",
        *("npm", "install", "--no-save", "--no-package-lock", "--omit=dev", "--", *wanted),
        cwd=item.path,
        env=ENV,
    )


async def _run_commands(context: BuildContext, item: Item) -> None:
    for line in item.plan.items(StepKind.COMMAND):
        await context.must(
            "command_failed",
            f"The command “{line}” of {item.name}",
            *ExecRequest.shell_argv(f"export PATH={quote(skill_path(item))}\n{line}"),
            cwd=item.path,
            env={**ENV, "SKILL_DIR": item.path},
            show=line,
        )
