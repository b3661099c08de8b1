"""The base template holds what skills and installs rely on. Reads the one of this host."""

from __future__ import annotations

import subprocess

import pytest

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.templates import ID_RANGE, ID_SHIFT, Template, TemplateStore
from sandboxes.sandboxd.templates.commands import default_templates_dir

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def base() -> Template:
    try:
        return TemplateStore(default_templates_dir()).get("base")
    except InvalidRequest as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-c", "import ssl, sqlite3, venv, pip"],
        ["pip", "--version"],
        ["node", "-e", "if (+process.versions.node.split('.')[0] < 24) process.exit(1)"],
        ["npm", "--version"],
        ["npx", "--version"],
        ["uv", "--version"],
        ["test", "-x", "/usr/bin/git"],
        ["curl", "--version"],
        ["id", "user"],
        ["sh", "-c", "locale -a | grep -qi c.utf"],
        ["test", "!", "-e", "/usr/lib/python3.11/EXTERNALLY-MANAGED"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_base_runs(base: Template, command: list[str]) -> None:
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
    as_sandbox_user = [
        "/usr/sbin/chroot",
        f"--userspec={ID_SHIFT + 1000}:{ID_SHIFT + 1000}",
        base.rootfs,
    ]
    done = subprocess.run(
        [*as_sandbox_user, *command], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_owner_is_shifted(base: Template) -> None:
    low, high = ID_SHIFT, ID_SHIFT + ID_RANGE - 1
    condition = ["(", "-uid", f"-{low}", "-o", "-uid", f"+{high}", "-o", "-gid", f"-{low}", ")"]
    done = subprocess.run(
        ["find", base.rootfs, *condition], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_user_owns_the_workspace_but_not_the_skills(base: Template) -> None:
    assert (base.rootfs / "workspace/output").stat().st_uid == ID_SHIFT + 1000
    skills = (base.rootfs / "opt/weknora/tenant/skills").stat()
    assert (skills.st_uid, skills.st_mode & 0o022) == (ID_SHIFT, 0)


def test_package_clients_are_told_of_the_certificates(base: Template) -> None:
    bundle = base.env["NODE_EXTRA_CA_CERTS"]
    assert base.env["PIP_CERT"] == base.env["SSL_CERT_FILE"] == bundle
    assert (base.rootfs / bundle.lstrip("/")).stat().st_size > 100_000
