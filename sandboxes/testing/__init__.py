"""The contract suite: one class a behaviour, skipped only by capability.

A backend's test module has a module-scoped `client` fixture, a `template` fixture, and

    class TestLifecycle(LifecycleContract): ...

for each class in `__all__`. It imports the other fixtures from `sandboxes.testing.fixtures` in its
conftest. See docs/backends.md.
"""

import pytest

# The assertions in these modules are rewritten by pytest, as those of any test module.
for _name in (
    "base",
    "cleanup",
    "concurrency",
    "errors",
    "exec",
    "files",
    "inbound",
    "killing",
    "lifecycle",
    "network",
    "pausing",
    "snapshots",
    "templates",
    "terminal",
):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")

from sandboxes.testing.base import Contract, Outside, SandboxFactory, Target, needs  # noqa: E402
from sandboxes.testing.cleanup import CleanupContract  # noqa: E402
from sandboxes.testing.concurrency import ConcurrencyContract  # noqa: E402
from sandboxes.testing.errors import ErrorContract  # noqa: E402
from sandboxes.testing.exec import (  # noqa: E402
    ExecInputContract,
    ExecOutputContract,
    ExecResultContract,
)
from sandboxes.testing.files import (  # noqa: E402
    DirectoryContract,
    FileContract,
    FileLinkContract,
    FileStreamContract,
)
from sandboxes.testing.inbound import InboundContract  # noqa: E402
from sandboxes.testing.killing import ExecDeadlineContract, ExecLeavingContract  # noqa: E402
from sandboxes.testing.lifecycle import (  # noqa: E402
    CapabilityContract,
    LifecycleContract,
    MetadataContract,
)
from sandboxes.testing.network import (  # noqa: E402
    NetworkUpdateContract,
    OutboundContract,
    OutboundNameContract,
)
from sandboxes.testing.pausing import IdleTimeoutContract, PauseContract  # noqa: E402
from sandboxes.testing.snapshots import SnapshotContract  # noqa: E402
from sandboxes.testing.templates import TemplateContract  # noqa: E402
from sandboxes.testing.terminal import TerminalContract  # noqa: E402

__all__ = [
    "CapabilityContract",
    "CleanupContract",
    "ConcurrencyContract",
    "Contract",
    "DirectoryContract",
    "ErrorContract",
    "ExecDeadlineContract",
    "ExecInputContract",
    "ExecLeavingContract",
    "ExecOutputContract",
    "ExecResultContract",
    "FileContract",
    "FileLinkContract",
    "FileStreamContract",
    "IdleTimeoutContract",
    "InboundContract",
    "LifecycleContract",
    "MetadataContract",
    "NetworkUpdateContract",
    "OutboundContract",
    "OutboundNameContract",
    "Outside",
    "PauseContract",
    "SandboxFactory",
    "SnapshotContract",
    "Target",
    "TemplateContract",
    "TerminalContract",
    "needs",
]
