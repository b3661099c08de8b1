"""What the documentation shows is run as it stands."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.console.api.server import Server

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "docs/examples/skillyard_client.py"
    spec = importlib.util.spec_from_file_location("skillyard_client", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_example_client_does_a_whole_turn(console: Server, example: ModuleType) -> None:
    with example.Skillyard(console.url, key=console.facts["keys"]["all"]) as api:
        session = api.session(space=console.facts["space"], id="客户/42 ?#")
        assert [skill["name"] for skill in api.skills(console.facts["space"])] == ["greeter"]
        assert "greet.py" in api.instructions(console.facts["space"], "greeter")
        with session.turn():
            assert session.stage("in.txt", b"staged") == "/workspace/input/in.txt"
            result = session.run_skill(
                "greeter", "scripts/greet.py", ["Ada"], stdin=b"\xe4\xbd\xa0"
            )
            assert (result.ok, result.stdout.decode()) == (True, "hello Ada 你\n")
            assert session.exec(["cat", "input/in.txt"]).stdout == b"staged"
            assert session.exec("printf '\\377'").stdout == b"\xff"
            names = [event.name for event in session.stream("echo out; echo err >&2; exit 3")]
            assert sorted(names) == ["exit", "start", "stderr", "stdout"]
            assert [entry["path"] for entry in session.outputs()] == ["/workspace/output/hello.txt"]
            assert session.read("output/hello.txt").decode() == "hello Ada 你"
            session.write("a/b.bin", (b"x" * 1000 for _ in range(3)))
            assert len(session.read("a/b.bin")) == 3000
            session.unstage("in.txt")
            assert not session.exec(["test", "-e", "input/in.txt"]).ok
            packed = io.BytesIO()
            session.download_outputs(packed)
            assert zipfile.ZipFile(packed).namelist() == ["hello.txt"]
        assert session.destroy()
        with pytest.raises(example.SkillyardError) as caught:
            session.read("a/b.bin")
        assert caught.value.gone


def test_every_curl_example_succeeds(console: Server, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/examples/curl.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    script = "set -eu\n" + "".join(blocks).replace("curl -sS", "curl -sS --fail-with-body")
    script = script.replace("/tmp/", f"{tmp_path}/")
    facts = console.facts
    done = subprocess.run(
        ["bash", "-c", script],
        env={
            "PATH": "/usr/bin:/bin",
            "URL": console.url,
            "KEY": facts["keys"]["all"],
            "TENANT": facts["tenant"],
            "SPACE": facts["space"],
            "no_proxy": "*",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello Ada !" in done.stdout
    assert "event: exit" in done.stdout
    assert done.stdout.count("from a file") >= 2
    assert zipfile.is_zipfile(tmp_path / "skillyard-output.zip")
