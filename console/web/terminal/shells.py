"""The shell of a person in a session: one each, found again by its name until it ends with the sandbox.

Nothing about it is kept here: it lives in the sandbox, so a web process may end and another go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.fleet import sessions as live
from console.fleet.runtime import shared_runtime
from console.fleet.workspace import WORKSPACE, ensure_workspace
from console.web.terminal.visitors import Visitor
from sandboxes.client import SandboxClient, Terminal, TerminalAccess
from sandboxes.errors import NotFound, Unsupported
from sandboxes.types import Sandbox, SandboxState

__all__ = ["Over", "Paused", "Shell", "found", "opened"]


class Over(Exception):
    """The shell has ended."""


class Paused(Exception):
    """The sandbox sleeps, and nobody asked to wake it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """`same` says that it ran before."""

    client: SandboxClient
    sandbox: Sandbox
    terminal: Terminal
    same: bool


@asynccontextmanager
async def opened(visitor: Visitor, *, cols: int, rows: int) -> AsyncIterator[Shell]:
    """The person's shell, begun if it doesn't run, in a sandbox that is made or woken if need be."""
    session = visitor.session
    resolved = await live.resolve(
        runtime=shared_runtime(),
        space=session.space,
        session_id=session.session_id,
        actor=visitor.actor,
    )
    client, sandbox = resolved.client, resolved.sandbox
    access = _access(client)
    name = _name(visitor)
    if name in await access.names(sandbox):
        async with access.attach(sandbox, name) as terminal:
            # The page that showed its screen may be gone: a change of size has programs draw it anew.
            await terminal.resize(cols=cols, rows=max(rows - 1, 1))
            await terminal.resize(cols=cols, rows=rows)
            yield Shell(client=client, sandbox=sandbox, terminal=terminal, same=True)
        return
    await ensure_workspace(client, sandbox)
    async with access.open(sandbox, name=name, cols=cols, rows=rows, cwd=WORKSPACE) as terminal:
        yield Shell(client=client, sandbox=sandbox, terminal=terminal, same=False)


@asynccontextmanager
async def found(visitor: Visitor, *, cols: int, rows: int) -> AsyncIterator[Shell]:
    """The person's shell as it runs. NotFound without a sandbox, Over if the shell has ended in it; Paused
    rather than wake it."""
    runtime, session = shared_runtime(), visitor.session
    client = await runtime.client(session.space.backend)
    key = live.session_key(session.space, session.session_id)
    binding = (await runtime.sessions.state(key=key)).binding(key)
    if binding is None:
        raise _gone()
    if (await client.get(binding.sandbox_id)).state is SandboxState.PAUSED:
        raise Paused
    sandbox = await runtime.sessions.lookup(
        key=key, client=client, backend=session.space.backend_id
    )
    if sandbox is None:
        raise _gone()
    access, name = _access(client), _name(visitor)
    if name not in await access.names(sandbox):
        raise Over
    async with access.attach(sandbox, name) as terminal:
        await terminal.resize(cols=cols, rows=rows)
        yield Shell(client=client, sandbox=sandbox, terminal=terminal, same=True)


def _access(client: SandboxClient) -> TerminalAccess:
    if client.terminal is None:
        raise Unsupported(_("This backend has no terminals; run single commands instead."))
    return client.terminal


def _name(visitor: Visitor) -> str:
    return f"console-{visitor.user_id}"


def _gone() -> NotFound:
    return NotFound(_("The session has no sandbox now; run something and it gets a new one."))
