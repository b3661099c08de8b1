"""A tar from anywhere becomes a template, or is refused with nothing left behind."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.templates import ID_SHIFT, TemplateStore

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="importing a template needs root")

PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"


def silent(text: str, fraction: float | None) -> None:
    pass


def member(
    name: str,
    data: bytes | None = None,
    *,
    type: bytes = tarfile.REGTYPE,
    link: str = "",
    mode: int = 0o755,
    uid: int = 0,
    device: tuple[int, int] = (0, 0),
) -> tuple[tarfile.TarInfo, bytes | None]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.uid, info.gid = type, link, mode, uid, uid
    info.devmajor, info.devminor = device
    info.size = len(data) if data is not None else 0
    info.mtime = 1_700_000_000
    return info, data


def folder(name: str, **more: int) -> tuple[tarfile.TarInfo, None]:
    return member(name, type=tarfile.DIRTYPE, **more)[0], None  # type: ignore[arg-type]


ROOT = [
    folder("."),
    folder("./bin"),
    member("./bin/sh", b"#!", mode=0o755),
    folder("./etc"),
    member("./etc/passwd", PASSWD, mode=0o644),
    member("./etc/group", b"root:x:0:\n", mode=0o644),
]


def write_tar(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes | None]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data) if data is not None else None)
    return path


@pytest.fixture
def store(tmp_path: Path) -> TemplateStore:
    return TemplateStore(tmp_path / "templates")


def leftovers(store: TemplateStore) -> list[str]:
    return sorted(p.name for p in store.root.iterdir() if p.name != ".lock")


def test_import_shifts_owners_and_keeps_modes(store: TemplateStore, tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "root.tar",
        [
            *ROOT,
            member("./bin/su", b"x", mode=0o4755),
            member("./data", b"mine", mode=0o640, uid=1000),
            member("./again", type=tarfile.LNKTYPE, link="./data"),
            member("./lib", type=tarfile.SYMTYPE, link="/etc/passwd"),
        ],
    )

    template = store.import_tar("mine", tar, silent)

    assert template.name == "mine"
    assert template.id.startswith("mine-")
    su = (template.rootfs / "bin/su").lstat()
    assert (su.st_uid, stat.S_IMODE(su.st_mode)) == (ID_SHIFT, 0o4755)
    data = (template.rootfs / "data").lstat()
    assert (data.st_uid, data.st_gid) == (ID_SHIFT + 1000, ID_SHIFT + 1000)
    assert (stat.S_IMODE(data.st_mode), int(data.st_mtime)) == (0o640, 1_700_000_000)
    assert (template.rootfs / "again").lstat().st_ino == data.st_ino
    assert os.readlink(template.rootfs / "lib") == "/etc/passwd"
    assert template.size_bytes > 0
    assert store.get("mine") == store.get(template.id) == template


def test_import_lays_out_workspace_and_user(store: TemplateStore, tmp_path: Path) -> None:
    template = store.import_tar("mine", write_tar(tmp_path / "root.tar", ROOT), silent)

    accounts = (template.rootfs / "etc/passwd").read_text().splitlines()
    assert accounts[1] == "user:x:1000:1000::/home/user:/bin/sh"
    assert (template.rootfs / "etc/group").read_text().splitlines()[1] == "user:x:1000:"
    for path, owner in {
        "workspace/input": 1000,
        "workspace/output": 1000,
        "home/user": 1000,
        "opt/weknora/tenant/skills": 0,
        "opt/weknora": 0,
    }.items():
        assert (template.rootfs / path).lstat().st_uid == ID_SHIFT + owner, path


def test_import_trusts_what_the_host_trusts(
    store: TemplateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (tmp_path / "own-ca.pem").write_text(pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own-ca.pem"))
    bundle = [folder("./etc/ssl/certs"), member("./etc/ssl/certs/ca-certificates.crt", b"OLD\n")]

    template = store.import_tar("mine", write_tar(tmp_path / "r.tar", [*ROOT, *bundle]), silent)

    text = (template.rootfs / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert text.startswith("OLD\n")
    assert pem in text
    assert template.env["PIP_CERT"] == "/etc/ssl/certs/ca-certificates.crt"


def test_import_leaves_out_devices_under_dev_alone(store: TemplateStore, tmp_path: Path) -> None:
    null = member("./dev/null", type=tarfile.CHRTYPE, device=(1, 3))
    template = store.import_tar(
        "mine", write_tar(tmp_path / "root.tar", [*ROOT, folder("./dev"), null]), silent
    )
    assert list((template.rootfs / "dev").iterdir()) == []


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ([member("../escaped", b"x")], r"climbs out"),
        ([member("a/../../escaped", b"x")], r"climbs out"),
        (
            [member("out", type=tarfile.SYMTYPE, link="/tmp"), member("out/escaped", b"x")],
            r"goes through 'out'",
        ),
        (
            [member("up", type=tarfile.SYMTYPE, link=".."), member("up/escaped", b"x")],
            r"goes through 'up'",
        ),
        ([member("steal", type=tarfile.LNKTYPE, link="/etc/hostname")], r"does not come before"),
        ([member("steal", type=tarfile.LNKTYPE, link="../../x")], r"climbs out"),
        (
            [
                member("etc2", type=tarfile.SYMTYPE, link="/etc"),
                member("steal", type=tarfile.LNKTYPE, link="etc2/hostname"),
            ],
            r"goes through 'etc2'",
        ),
        ([member("sda", type=tarfile.BLKTYPE, device=(8, 0))], r"'sda' is a device"),
        ([member("big", b"x", uid=70000)], r"past the 65536 owners"),
        ([member("workspace", type=tarfile.SYMTYPE, link="/tmp")], r"/workspace is a link"),
    ],
)
def test_import_refuses_what_reaches_outside(
    store: TemplateStore,
    tmp_path: Path,
    bad: list[tuple[tarfile.TarInfo, bytes | None]],
    complaint: str,
) -> None:
    tar = write_tar(tmp_path / "root.tar", [*ROOT, *bad])

    with pytest.raises(InvalidRequest, match=complaint):
        store.import_tar("mine", tar, silent)

    assert leftovers(store) == []
    assert not Path("/tmp/escaped").exists()
    assert not list(tmp_path.rglob("escaped"))


def test_import_does_not_write_through_a_link_in_place_of_the_account_file(
    store: TemplateStore, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("root:x:0:0:root:/root:/bin/sh\n")
    link = member("./etc/passwd", type=tarfile.SYMTYPE, link=str(victim))

    with pytest.raises(InvalidRequest, match="no /etc/passwd"):
        store.import_tar("mine", write_tar(tmp_path / "root.tar", [*ROOT, link]), silent)

    assert victim.read_text() == "root:x:0:0:root:/root:/bin/sh\n"


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ([folder("./etc"), member("./etc/passwd", PASSWD)], "no /bin/sh"),
        ([folder("./bin"), member("./bin/sh", b"#!")], "no /etc/passwd"),
        (
            [*ROOT[:4], member("./etc/passwd", PASSWD + b"node:x:1000:1000::/:/bin/sh\n")],
            "gives id 1000 to 'node'",
        ),
    ],
)
def test_import_refuses_what_cannot_be_a_sandbox(
    store: TemplateStore,
    tmp_path: Path,
    members: list[tuple[tarfile.TarInfo, bytes | None]],
    complaint: str,
) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        store.import_tar("mine", write_tar(tmp_path / "root.tar", members), silent)
    assert leftovers(store) == []


def test_import_refuses_what_is_no_tar(store: TemplateStore, tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(b"PK\x03\x04 not a tar" * 100)
    with pytest.raises(InvalidRequest, match="not a readable tar"):
        store.import_tar("mine", tmp_path / "root.tar", silent)


@pytest.mark.parametrize("name", ["", "Über", "a/b", "../x", "-a", "x" * 41, "a_b", ".hidden"])
def test_import_refuses_bad_names(store: TemplateStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no template name"):
        store.import_tar(name, tmp_path / "root.tar", silent)
