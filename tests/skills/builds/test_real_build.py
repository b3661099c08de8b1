"""A build in a real sandbox, from upload to a release that a sandbox starts from."""

from __future__ import annotations

import pytest

from console.tenants.models import Space
from skills.models import BuildState
from skills.plan import StepKind
from tests.skills.world import add_skill, install, log_of

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]


def test_python_node_and_debian_packages_are_installed_verified_and_recorded(
    real_space: Space,
) -> None:
    version = add_skill(
        real_space,
        files={
            "scripts/table.py": "import tabulate\nprint(tabulate.tabulate([[1, 2]]))\n",
            "scripts/pad.js": "const pad = require('left-pad'); console.log(pad('x', 3));\n",
            "scripts/tree.sh": "#!/bin/sh\ntree /workspace\n",
        },
        steps={
            StepKind.PIP: ["tabulate==0.9.0"],
            StepKind.NPM: ["left-pad@1.3.0"],
            StepKind.APT: ["tree"],
            StepKind.COMMAND: ["echo made > made.txt"],
            StepKind.CHECK: ["command -v tree", "python scripts/table.py", "node scripts/pad.js"],
        },
    )
    build = install(real_space, version)
    assert build.state == BuildState.SUCCEEDED, log_of(build)
    print(log_of(build))
    print(build.report, build.steps)
    release = build.result
    assert release is not None
    assert release.packages["pip"] == {"report": {"tabulate": "0.9.0"}}
    assert release.packages["npm"] == {"report": {"left-pad": "1.3.0"}}
    assert "tree" in release.packages["apt"]
    assert release.sizes["report"] > 0
    real_space.refresh_from_db()
    assert real_space.current_release == release
