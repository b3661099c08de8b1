"""A host is tried from a sandbox of its own, under the policy in question, and leaves nothing but a line in
the audit log, without what else a URL holds."""

from __future__ import annotations

import pytest

from console.audit.models import AuditEntry
from console.fleet.policies import try_host
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.network import CLOSED
from sandboxes.testing.simulated import SimulatedProvider, SimulatedSandbox
from sandboxes.types import ExecRequest
from tests.console.fleet.loop import ALICE, in_loop


@pytest.mark.parametrize(
    ("exit_code", "said", "answer"),
    [(0, b"HTTP 204 from 203.0.113.7", "HTTP 204 from 203.0.113.7"), (7, b"", "curl: (7) refused")],
)
@in_loop
async def test_a_trial_says_what_it_met_and_is_audited(
    exit_code: int, said: bytes, answer: str, space: Space, account: SimulatedProvider
) -> None:
    tried: list[str] = []

    async def curl(
        sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> tuple[int, bytes, bytes]:
        tried.append(request.argv[-1])
        assert sandbox.request.network == CLOSED
        return exit_code, said, b"curl: (7) refused"

    account.commands["curl"] = curl
    async with Runtime() as runtime:
        trial = await try_host(
            runtime=runtime,
            space=space,
            policy=CLOSED,
            target="https://api.example.com/x?token=secret",
            actor=ALICE,
        )

    assert (trial.reached, trial.answer) == (exit_code == 0, answer)
    assert tried == ["https://api.example.com/x?token=secret"]
    assert account.sandboxes == {}
    entry = await AuditEntry.objects.aget(action="policy.try")
    assert (entry.target, entry.details) == ("api.example.com", {"reached": exit_code == 0})
    assert entry.space_id == space.pk
