"""Templates as Docker images: each one's root file system, loaded once, with no registry."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.archive import load_flat
from sandboxes.sandboxd.engines.runc.bundle import ID_OFFSET
from sandboxes.sandboxd.engines.runc.commands import command
from sandboxes.sandboxd.engines.runc.records import write_json
from sandboxes.sandboxd.templates import Template, TemplateStore

__all__ = ["TemplateImages", "image_architecture"]

_REPOSITORY = "skillyard-template"
_LABEL = "skillyard.template"


class TemplateImages:
    """`folder` holds the digest of each template's image. Safe for concurrent use."""

    def __init__(self, store: TemplateStore, api: Api, folder: Path) -> None:
        self._store = store
        self._api = api
        self._folder = folder
        self._loading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, template_id: str) -> Template:
        """InvalidRequest for an unknown one."""
        return await asyncio.to_thread(self._store.get, template_id)

    async def all(self) -> list[Template]:
        return await asyncio.to_thread(self._store.list)

    async def image_id(self, template: Template, *, architecture: str) -> str:
        """Of the image, which is loaded unless it was before: that takes some seconds."""
        if (known := self._pinned(template.id)) is not None:
            return known
        async with self._loading[template.id]:
            if (known := self._pinned(template.id)) is not None:
                return known
            found = await self._api.image(_tag(template.id))
            if found is not None and _labels(found).get(_LABEL) == template.id:
                image_id = str(found["Id"])  # another sandboxd of this engine has loaded it
            else:
                image_id = await self._load(template, architecture)
            write_json(self._path(template.id), {"image_id": image_id})
            return image_id

    async def restore(self, template: Template, *, architecture: str) -> str:
        """The image's id, once more after it was removed from Docker."""
        async with self._loading[template.id]:
            known = self._pinned(template.id)
            if known is not None and await self._api.image(known) is not None:
                return known
            image_id = await self._load(template, architecture)
            write_json(self._path(template.id), {"image_id": image_id})
            return image_id

    async def _load(self, template: Template, architecture: str) -> str:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".load-") as work:
            layer = Path(work, "layer.tar")
            await _pack(template.rootfs, layer)
            config = _config(template, architecture)
            return await load_flat(self._api, layer, config, tag=_tag(template.id))

    def _pinned(self, template_id: str) -> str | None:
        try:
            return str(json.loads(self._path(template_id).read_text())["image_id"])
        except (FileNotFoundError, ValueError, KeyError):
            return None

    async def remove(self, template_id: str) -> None:
        """Idempotent."""
        await self._api.delete_image(_tag(template_id))
        self._path(template_id).unlink(missing_ok=True)
        await asyncio.to_thread(self._store.remove, template_id)

    def _path(self, template_id: str) -> Path:
        return self._folder / f"{template_id}.json"


def _tag(template_id: str) -> str:
    return f"{_REPOSITORY}:{template_id}"


def _labels(image: Mapping[str, Any]) -> Mapping[str, str]:
    return image["Config"].get("Labels") or {}


async def _pack(rootfs: Path, target: Path) -> None:
    """A tar of the tree, with the owners that it has inside a sandbox."""
    users, groups = await asyncio.to_thread(_owners, rootfs)
    for name, ids in (("users", users), ("groups", groups)):
        lines = "".join(f"+{number} :{number - ID_OFFSET}\n" for number in sorted(ids))
        target.with_name(name).write_text(lines)
    await command(
        *("tar", "--create", "--file", target, "--directory", rootfs, "--sort=name"),
        *("--numeric-owner", f"--owner-map={target.with_name('users')}"),
        *(f"--group-map={target.with_name('groups')}", "--format=posix"),
        # Access times and the program's own pid would make every tar another one.
        "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        *("--xattrs", "--xattrs-include=security.capability", "."),
    )


def _owners(rootfs: Path) -> tuple[set[int], set[int]]:
    users: set[int] = set()
    groups: set[int] = set()
    for folder, _, files in os.walk(rootfs):
        for name in (*files, "."):
            status = os.lstat(os.path.join(folder, name))
            users.add(status.st_uid)
            groups.add(status.st_gid)
    return users, groups


def _config(template: Template, architecture: str) -> dict[str, Any]:
    created = template.created_at.isoformat()
    return {
        "architecture": image_architecture(architecture),
        "created": created,
        "config": {"Labels": {_LABEL: template.id}},
        "history": [{"created": created, "created_by": f"template {template.id}"}],
    }


def image_architecture(machine: str) -> str:
    """As images name it; `machine` is the kernel's word."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
