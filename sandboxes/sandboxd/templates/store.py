"""The store of templates on disk. Synchronous: call it from a thread in asynchronous code."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandboxes.errors import Capacity, InvalidRequest, Unsupported
from sandboxes.sandboxd.templates.base import BASE_NAME, RECIPE, BaseRecipe, bootstrap
from sandboxes.sandboxd.templates.host import HostSettings, read_host_settings
from sandboxes.sandboxd.templates.rootfs import (
    ID_SHIFT,
    append_certificates,
    extract_tar,
    make_ready,
    shift_owners,
    tree_size,
)

__all__ = ["Progress", "Template", "TemplateStore"]

Progress = Callable[[str, float | None], None]
"""Called with what is being done, and how far the whole is (0..1) or None where that is unknown."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_RECORD = "template.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """`rootfs` is immutable: sandboxes have it as a lower layer. `env` goes to every process."""

    id: str
    name: str
    created_at: datetime
    size_bytes: int
    rootfs: Path
    recipe: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class TemplateStore:
    """Templates under `root`. Safe with several processes at once: what `list` sees is whole, and
    builders take turns. A crashed build leaves nothing but a folder that the next one clears."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> list[Template]:
        """Newest first."""
        if not self.root.is_dir():
            return []
        found = (self._read(path) for path in self.root.iterdir() if path.name[0] != ".")
        known = [template for template in found if template is not None]
        return sorted(known, key=lambda template: (template.created_at, template.id), reverse=True)

    def get(self, id_or_name: str) -> Template:
        """By id, or the newest of a name. InvalidRequest, naming what there is, for neither."""
        known = self.list()
        for template in known:
            if template.id == id_or_name:
                return template
        for template in known:
            if template.name == id_or_name:
                return template
        if not known:
            raise InvalidRequest(
                f"There is no template {id_or_name!r}, nor any other yet: build the base with "
                "`manage.py template build`."
            )
        names = ", ".join(sorted({template.name for template in known}))
        raise InvalidRequest(f"There is no template {id_or_name!r}; there are: {names}.")

    def build_base(
        self,
        progress: Progress,
        *,
        recipe: BaseRecipe = RECIPE,
        settings: HostSettings | None = None,
        rebuild: bool = False,
    ) -> Template:
        """The base template of this recipe and this host's settings; built unless it is there.

        Idempotent, but for `rebuild`, which makes a new version with the packages of today. Blocks for one to three minutes, and while another process builds. Unsupported
        without root or mmdebstrap, Unavailable without the network, Capacity for a full disk.
        """
        settings = settings if settings is not None else read_host_settings()
        wanted = recipe.template_id(settings)
        with self._building(progress) as (work, lock):
            existing = self._version_of(wanted)
            if existing is not None and not rebuild:
                progress(f"{existing.id} is there already", 1.0)
                return existing
            for note in settings.notes:
                progress(note, None)
            rootfs = work / "rootfs"
            bootstrap(recipe, settings, rootfs, progress, keep_fd=lock)
            progress("giving the files their owners", 0.92)
            make_ready(rootfs, shift=0)
            shift_owners(rootfs, ID_SHIFT)
            made_id = wanted if existing is None else f"{wanted}-{_stamp()}"
            return self._publish(
                work, made_id, BASE_NAME, recipe.describe(settings), settings.env, progress
            )

    def import_tar(self, name: str, tar_path: Path, progress: Progress) -> Template:
        """A template from the tar of a whole root file system (plain, gz, bz2 or xz).

        Unpacked as root without trusting it; see `rootfs.extract_tar` for what is refused. Needs a
        /bin/sh and an /etc/passwd; gets the account `user` and the workspace. Each import is a new
        version of `name`. InvalidRequest says what is wrong with the name or the archive.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no template name: use up to 40 lower-case letters, digits and hyphens."
            )
        if not tar_path.is_file():
            raise InvalidRequest(f"There is no file {tar_path}.")
        if os.geteuid() != 0:
            raise Unsupported("Importing a template needs root: run it with sudo.")
        settings = read_host_settings()
        with self._building(progress) as (work, _):
            rootfs = work / "rootfs"
            rootfs.mkdir(mode=0o755)
            os.chown(rootfs, ID_SHIFT, ID_SHIFT)
            progress(f"unpacking {tar_path.name}", 0.0)

            def on_member(count: int) -> None:
                if count % 1000 == 0:
                    progress(f"unpacked {count} files", None)

            extract_tar(tar_path, rootfs, shift=ID_SHIFT, on_member=on_member)
            make_ready(rootfs, shift=ID_SHIFT)
            env = settings.env if append_certificates(rootfs, settings.certificates) else {}
            recipe = {"imported_from": tar_path.name}
            return self._publish(work, f"{name}-{_stamp()}", name, recipe, env, progress)

    def remove(self, template_id: str) -> None:
        """Idempotent. Whether sandboxes stand on it is the caller's to know."""
        if template_id not in {template.id for template in self.list()}:
            return
        path = self.root / template_id
        trash = Path(tempfile.mkdtemp(prefix=".trash-", dir=self.root))
        path.rename(trash / template_id)
        shutil.rmtree(trash)

    def _version_of(self, recipe_id: str) -> Template | None:
        """The newest that was made of a recipe."""
        known = self.list()
        return next((t for t in known if f"{t.id}-".startswith(f"{recipe_id}-")), None)

    def _read(self, path: Path) -> Template | None:
        try:
            record = json.loads((path / _RECORD).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Template(
            id=record["id"],
            name=record["name"],
            created_at=datetime.fromisoformat(record["created_at"]),
            size_bytes=record["size_bytes"],
            rootfs=path / "rootfs",
            recipe=record.get("recipe", {}),
            env=record.get("env", {}),
        )

    @contextmanager
    def _building(self, progress: Progress) -> Iterator[tuple[Path, int]]:
        """A private folder to build in, and the descriptor of the lock that only one holder has.

        Whoever holds the lock may clear away what earlier builders left, for none is alive.
        """
        try:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise Unsupported(
                f"Templates in {self.root} can be made by root alone: run this with sudo."
            ) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another build to finish", None)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in (*self.root.glob(".work-*"), *self.root.glob(".trash-*")):
                shutil.rmtree(left, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=".work-", dir=self.root))
            try:
                yield work, lock
            except OSError as error:
                if error.errno in (28, 122):  # no space, over quota
                    raise Capacity(
                        f"{self.root} is full; free some space or set SKILLYARD_TEMPLATES_DIR to a "
                        "larger disk."
                    ) from error
                raise
            finally:
                shutil.rmtree(work, ignore_errors=True)
        finally:
            os.close(lock)

    def _publish(
        self,
        work: Path,
        template_id: str,
        name: str,
        recipe: Mapping[str, Any],
        env: Mapping[str, str],
        progress: Progress,
    ) -> Template:
        progress("writing it to disk", 0.97)
        size_bytes = tree_size(work / "rootfs")
        record = {
            "id": template_id,
            "name": name,
            "created_at": datetime.now(UTC).isoformat(),
            "size_bytes": size_bytes,
            "recipe": recipe,
            "env": dict(env),
        }
        (work / _RECORD).write_text(json.dumps(record, indent=2) + "\n")
        os.sync()  # the rename below must not reach the disk before the files do
        work.chmod(0o755)
        final = self.root / template_id
        work.rename(final)
        progress(f"{template_id} is ready ({size_bytes // 1_000_000} MB)", 1.0)
        template = self._read(final)
        if template is None:
            raise InvalidRequest(f"{final} was removed while it was being made; build it again.")
        return template


def _stamp() -> str:
    return datetime.now(UTC).strftime("%y%m%d%H%M%S%f")[:15]
