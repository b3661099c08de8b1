"""`manage.py demo --json` does the main job for real and reports it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandboxes.sandboxd.templates.commands import default_templates_dir

CHECKOUT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="the demo needs root"),
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
    pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed"),
]


def test_the_demo_makes_real_artifacts_and_leaves_nothing(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        data = Path(folder) / "data"
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLYARD_", "REDIS"))}
        environ["SKILLYARD_TEMPLATES_DIR"] = str(default_templates_dir())
        command = [sys.executable, "manage.py", "demo", "--json", "--data-dir", str(data)]
        done = subprocess.run(
            [*command, "--output", str(tmp_path / "out")],
            cwd=CHECKOUT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert result["ok"] is True
        assert str(data) not in Path("/proc/self/mounts").read_text()
        assert not data.exists()

    names = {Path(artifact["path"]).name for artifact in result["artifacts"]}
    assert {"sales-report.xlsx", "sales-chart.png", "handbook.txt", "sales.svg"} <= names
    for artifact in result["artifacts"]:
        content = Path(artifact["path"]).read_bytes()
        assert len(content) == artifact["bytes"] > 0
        assert hashlib.sha256(content).hexdigest() == artifact["sha256"]
    for figure in ("build_s", "session_from_release_ms", "exec_ms", "snapshot_ms"):
        assert result[figure] > 0
    assert result["session_from_base_with_install_s"] * 1000 > result["session_from_release_ms"]
