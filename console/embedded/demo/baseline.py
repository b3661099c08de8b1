"""What a session without a release has to do before its first skill runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from console.fleet.sessions import LiveSession
from sandboxes.errors import Internal
from sandboxes.types import ExecRequest
from skills.models import SKILLS_ROOT
from skills.plan import Plan
from skills.plan.types import StepKind

__all__ = ["install_by_hand"]


async def install_by_hand(
    live: LiveSession, plans: Mapping[str, Plan], say: Callable[[str], None]
) -> None:
    """Install the packages of every plan as root. Internal, with the last words, if one fails."""
    apt = sorted({name for plan in plans.values() for name in plan.items(StepKind.APT)})
    commands: list[tuple[str, ...]] = []
    if apt:
        commands += [("apt-get", "-q", "update"), ("apt-get", "-q", "install", "-y", *apt)]
    for skill, plan in plans.items():
        folder = f"{SKILLS_ROOT}/{skill}"
        commands.append(("mkdir", "-p", folder))
        if pip := plan.items(StepKind.PIP):
            venv = f"{folder}/.venv"
            commands.append(("uv", "venv", "-q", "--python", "/usr/bin/python3", venv))
            commands.append(("uv", "pip", "install", "-q", "--python", venv, *pip))
        if npm := plan.items(StepKind.NPM):
            commands.append(("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *npm))
    for command in commands:
        say(" ".join(command))
        request = ExecRequest(
            argv=command, user="root", env={"DEBIAN_FRONTEND": "noninteractive"}, timeout_s=600
        )
        done = await live.client.run(live.sandbox, request)
        if not done.ok:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise Internal(f"{' '.join(command)} exited with {done.exit_code}: {said[-400:]}")
