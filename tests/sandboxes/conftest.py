"""A real sandboxd for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandboxes import daemon as daemons


@pytest.fixture(scope="module")
def sandboxd() -> Iterator[daemons.Daemon]:
    """One for the tests of a module, which have to leave nothing on the host."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start() as daemon:
        yield daemon
        daemon.stop()
        assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="module")
def template(sandboxd: daemons.Daemon) -> str:
    return daemons.base_template()
