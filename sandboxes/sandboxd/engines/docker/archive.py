"""Our own copies of images, in the form of `docker save`, each layer once.

    archive/layers/<digest>.tar      a layer, named by the digest of its content
            images/<digest>.json     an image: its configuration, and its layers from the lowest up

Docker may lose an image to a prune at any time; what is here is loaded again with the very same
digest. https://github.com/moby/docker-image-spec/blob/v1.3.0/v1.2.md
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxes.errors import Internal
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.runc.records import write_json
from sandboxes.sandboxd.engines.runc.waiting import run_to_end

__all__ = ["Archive", "load_flat", "write_stream"]

_CHUNK_BYTES = 1 << 20
_UNFINISHED = ".new-"


class Archive:
    """Safe for concurrent use; one image is taken apart at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._saving = asyncio.Lock()

    def start(self) -> None:
        """Clear what a crash left."""
        for name in ("layers", "images"):
            (self._root / name).mkdir(parents=True, exist_ok=True)
        for leftover in self._root.rglob(f"{_UNFINISHED}*"):
            leftover.unlink()

    def holds(self, image_id: str) -> bool:
        return self._record(image_id).exists()

    async def save(self, api: Api, image_id: str) -> None:
        """Idempotent. All or nothing; what is kept has reached the disk. Once the export has begun, Docker
        holds the image's layers until its end, whoever deletes it: so none waits for another's."""
        if self.holds(image_id):
            return
        temporary = self._root / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            async with api.export_image(image_id) as content:
                await write_stream(temporary, content)
            async with self._saving:
                await run_to_end(self._take_apart, temporary, image_id)
        finally:
            temporary.unlink(missing_ok=True)

    async def load(self, api: Api, image_id: str, *, tag: str) -> None:
        """Put it back into Docker, named `tag`."""
        data = json.loads(self._record(image_id).read_text())
        layers = [self._layer(digest) for digest in data["layers"]]
        await api.load(_image_archive(data["config"].encode(), layers, tag=tag))

    def forget_all_but(self, image_ids: Iterable[str]) -> None:
        """Blocks."""
        wanted = {self._record(image_id) for image_id in image_ids}
        layers: set[Path] = set()
        for path in (self._root / "images").glob("*.json"):
            if path in wanted:
                layers |= {self._layer(d) for d in json.loads(path.read_text())["layers"]}
            else:
                path.unlink()
        for path in (self._root / "layers").glob("*.tar"):
            if path not in layers:
                path.unlink(missing_ok=True)

    def _record(self, image_id: str) -> Path:
        return self._root / "images" / f"{image_id.removeprefix('sha256:')}.json"

    def _layer(self, digest: str) -> Path:
        return self._root / "layers" / f"{digest}.tar"

    def _take_apart(self, archive: Path, image_id: str) -> None:
        with tarfile.open(archive) as tar:
            manifest: dict[str, Any] = json.loads(_member(tar, "manifest.json").read())[0]
            config = _member(tar, manifest["Config"]).read()
            if _digest(config) != image_id:
                raise Internal(
                    f"Docker's copy of {image_id} has another digest; switch Docker's containerd "
                    "image store off (“features”: {“containerd-snapshotter”: false})."
                )
            names = [d.removeprefix("sha256:") for d in json.loads(config)["rootfs"]["diff_ids"]]
            for digest, member in zip(names, manifest["Layers"], strict=True):
                if not self._layer(digest).exists():
                    self._keep_layer(_member(tar, member), self._layer(digest))
        record = {"config": config.decode(), "layers": names}
        write_json(self._record(image_id), record, durable=True)

    def _keep_layer(self, source: io.BufferedReader, target: Path) -> None:
        temporary = target.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
        with temporary.open("wb") as file:
            shutil.copyfileobj(source, file, _CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)


async def write_stream(path: Path, content: AsyncIterator[bytes]) -> None:
    with path.open("wb") as file:
        async for chunk in content:
            await asyncio.to_thread(file.write, chunk)


async def load_flat(api: Api, layer: Path, config: Mapping[str, Any], *, tag: str) -> str:
    """An image of one layer, made by us to the last byte, so that its digest (which is returned)
    says what is in it. Idempotent. `config` is all of the image's configuration but its layers."""
    digest = await run_to_end(_file_digest, layer)
    whole = {**config, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest]}}
    data = json.dumps(whole, sort_keys=True).encode()
    image_id = _digest(data)
    if await api.image(image_id) is None:
        await api.load(_image_archive(data, [layer], tag=tag))
    return image_id


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


async def _image_archive(
    config: bytes, layers: Sequence[Path], *, tag: str
) -> AsyncIterator[bytes]:
    """A tar that `docker load` takes, of one image."""
    digest = hashlib.sha256(config).hexdigest()
    manifest = [
        {
            "Config": f"{digest}.json",
            "RepoTags": [tag],
            "Layers": [f"{number}.tar" for number in range(len(layers))],
        }
    ]
    yield _header(f"{digest}.json", len(config)) + _padded(config)
    for number, layer in enumerate(layers):
        with layer.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            yield _header(f"{number}.tar", size)
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk
            yield _padding(size)
    text = json.dumps(manifest).encode()
    yield _header("manifest.json", len(text)) + _padded(text) + bytes(2 * tarfile.BLOCKSIZE)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _padded(data: bytes) -> bytes:
    return data + _padding(len(data))


def _member(tar: tarfile.TarFile, name: str) -> Any:
    found = tar.extractfile(name)
    if found is None:
        raise Internal(f"Docker's image archive holds no file {name}; see its version.")
    return found
