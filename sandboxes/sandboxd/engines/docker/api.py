"""The Docker Engine API, as far as we use it, with its errors turned into ours.

What people can mend (no daemon, no permission, too old) is said in one sentence; Docker's own words
go into the log. https://docs.docker.com/reference/api/engine/version/v1.41/
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiodocker
import aiohttp

from sandboxes.errors import (
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.sandboxd.engines.base import WindowSize
from sandboxes.sandboxd.engines.docker.dialing import GuardedConnector
from sandboxes.urlguard import UrlGuard, UrlRefused, check_url

__all__ = ["DEFAULT_URL", "Api", "DockerHost", "ExecStream"]

DEFAULT_URL = "unix:///var/run/docker.sock"
_OLDEST_API = (1, 41)
_CALL_TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=10)
_LONG = aiohttp.ClientTimeout(total=None, sock_connect=10)
# Docker lets go of a terminal when it reads these; its default is a key that programs use.
_DETACH_KEYS = "ctrl-@,ctrl-^,ctrl-@,ctrl-^,ctrl-@"
_NO_CONNECTION = 900  # aiodocker's own status for it
_TLS_FILES = ("ca.pem", "cert.pem", "key.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """`unix://PATH`, or `tcp://HOST:PORT` with the folder of ca.pem, cert.pem and key.pem. `guard` judges
    the addresses of the latter: private ones need to be allowed."""

    url: str = DEFAULT_URL
    tls_dir: Path | None = None
    guard: UrlGuard = field(default_factory=UrlGuard)

    @property
    def socket(self) -> Path | None:
        return Path(self.url.removeprefix("unix://")) if self.url.startswith("unix://") else None

    def open(self) -> aiodocker.Docker:
        """InvalidRequest if this can't be an engine's address, or its TLS files can't be used."""
        if self.socket is not None:
            return aiodocker.Docker(url=self.url, timeout=_CALL_TIMEOUT)
        parts = urlsplit(self.url)
        try:
            usable = parts.scheme == "tcp" and parts.hostname and parts.port
        except ValueError:
            usable = None
        if not usable:
            raise InvalidRequest(
                f"“{self.url}” is no Docker host; give unix://PATH, or tcp://HOST:PORT with TLS."
            )
        if self.tls_dir is None:
            raise InvalidRequest(
                f"{self.url} needs TLS, or anyone on the way could take over its host; give "
                f"--docker-tls-dir with {', '.join(_TLS_FILES)}."
            )
        url = f"https://{parts.netloc}"
        try:
            check_url(url, allow_private=self.guard.allow_private)
        except UrlRefused as error:
            raise self.refused(error) from error
        return aiodocker.Docker(
            url=url,
            connector=GuardedConnector(self.guard, ssl=_tls(self.tls_dir)),
            timeout=_CALL_TIMEOUT,
        )

    def refused(self, error: UrlRefused) -> UrlRefused:
        hint = "" if self.guard.allow_private else " (--docker-allow-private)"
        return UrlRefused(f"{self.url} is not dialled. {error.message.rstrip('.')}{hint}.")


def _tls(folder: Path) -> ssl.SSLContext:
    ca, cert, key = (folder / name for name in _TLS_FILES)
    try:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
    except FileNotFoundError:
        raise InvalidRequest(
            f"{folder} must hold {', '.join(_TLS_FILES)}; one is missing."
        ) from None
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"The TLS files in {folder} can't be used ({error}); make them anew."
        ) from None
    return context


class Api:
    """One connection pool to one engine. Every method raises only `sandboxes.errors`."""

    def __init__(self, host: DockerHost) -> None:
        self._host = host
        self._docker = host.open()

    async def aclose(self) -> None:
        connector = self._docker.connector
        await self._docker.close()
        await connector.close()

    async def info(self) -> dict[str, Any]:
        """What the engine says of itself. Unsupported if it is too old."""
        with self.errors():
            version = await self._docker.version()
            info: dict[str, Any] = await self._docker.system.info()  # type: ignore[assignment]
        spoken = str(version["ApiVersion"])
        if tuple(int(part) for part in spoken.split(".")) < _OLDEST_API:
            raise Unsupported(
                f"Docker at {self._host.url} speaks API {spoken}; "
                "1.41 or newer is needed: install Docker 20.10 or later."
            )
        return info

    # Containers

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """The container's id. NotFound if the image is not there."""
        with self.errors():
            container = await self._docker.containers.create(config, name=name)
            return container.id

    async def start(self, container: str) -> None:
        with self.errors():
            await self._docker.containers.container(container).start()

    async def inspect(self, container: str) -> dict[str, Any]:
        with self.errors():
            return await self._docker.containers.container(container).show()

    async def remove(self, container: str) -> None:
        """Idempotent: with its processes and anonymous volumes."""
        with self.errors(), contextlib.suppress(NotFound), self.errors():
            await self._docker.containers.container(container).delete(force=True, v=True)

    async def containers(self, label: str) -> list[dict[str, Any]]:
        """Of that label (`name=value`), stopped ones too."""
        filters = json.dumps({"label": [label]})
        with self.errors():
            found = await self._docker.containers.list(all=True, filters=filters)
            return [container._container for container in found]

    async def pause(self, container: str) -> None:
        with self.errors():
            await self._docker.containers.container(container).pause()

    async def unpause(self, container: str) -> None:
        with self.errors():
            await self._docker.containers.container(container).unpause()

    @contextlib.asynccontextmanager
    async def export_files(self, container: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A tar of its whole root file system."""
        # The one call that aiodocker has no method for.
        path = f"containers/{container}/export"
        with self.errors():
            async with self._docker._query(path, timeout=_LONG) as response:
                yield response.content.iter_chunked(1 << 20)

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        user: str,
        env: Mapping[str, str],
        stdin: bool = False,
        terminal: WindowSize | None = None,
    ) -> ExecStream:
        """Start a command. Conflict if the container does not run."""
        with self.errors():
            execution = await self._docker.containers.container(container).exec(
                cmd=list(argv),
                user=user,
                environment=[f"{name}={value}" for name, value in env.items()],
                stdin=stdin,
                tty=terminal is not None,
                detach_keys=_DETACH_KEYS,
            )
            started = execution.start(detach=False)
            await started.__aenter__()
            stream = ExecStream(self, execution, started)
            if terminal is not None:
                await stream.resize(terminal)
            return stream

    # Networks

    async def create_network(
        self, name: str, *, options: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """A bridge. Conflict if there is one of that name."""
        config = {
            "Name": name,
            "Driver": "bridge",
            "CheckDuplicate": True,
            "Options": dict(options),
            "Labels": dict(labels),
        }
        with self.errors():
            await self._docker.networks.create(config)

    async def remove_network(self, name: str) -> None:
        with self.errors():
            await (await self._docker.networks.get(name)).delete()

    async def connect(self, network: str, container: str) -> None:
        with self.errors():
            found = await self._docker.networks.get(network)
            await found.connect({"Container": container})

    async def disconnect(self, network: str, container: str) -> None:
        with self.errors():
            found = await self._docker.networks.get(network)
            await found.disconnect({"Container": container, "Force": True})

    # Images

    async def commit(
        self, container: str, *, repository: str, tag: str, config: Mapping[str, Any]
    ) -> str:
        """The new image's id. The container stands still meanwhile."""
        with self.errors():
            made = await self._docker.containers.container(container).commit(
                repository=repository, tag=tag, config=dict(config), timeout=_LONG
            )
            return str(made["Id"])

    async def image(self, reference: str) -> dict[str, Any] | None:
        with self.errors(), contextlib.suppress(NotFound), self.errors():
            return await self._docker.images.inspect(reference)
        return None

    async def images(self, label: str) -> list[dict[str, Any]]:
        """Untagged ones too."""
        with self.errors():
            found: list[dict[str, Any]] = await self._docker.images.list(filters={"label": [label]})
            return found

    async def delete_image(self, reference: str, *, untag: bool = False) -> bool:
        """Whether it is gone; False while something stands on it. `untag` takes the name away even
        so."""
        try:
            with self.errors():
                await self._docker.images.delete(reference, force=untag)
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    async def tag(self, image: str, repository: str, tag: str) -> None:
        with self.errors():
            await self._docker.images.tag(image, repository, tag=tag)

    async def load(self, archive: AsyncIterator[bytes]) -> None:
        """An image archive in the form of `docker save`."""
        with self.errors():
            await self._docker.images.import_image(archive, timeout=_LONG)

    @contextlib.asynccontextmanager
    async def export_image(self, image: str) -> AsyncIterator[AsyncIterator[bytes]]:
        with self.errors():
            async with self._docker.images.export_image(image, timeout=_LONG) as content:
                yield content.iter_chunked(1 << 20)

    # Errors

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except aiodocker.DockerError as error:
            raise self._translated(error) from error
        except UrlRefused as error:
            raise self._host.refused(error) from error
        except TimeoutError as error:
            raise TimedOut(
                f"Docker at {self._host.url} did not answer in time; see whether it hangs."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                f"The connection to Docker at {self._host.url} broke; see whether it runs.",
                detail=str(error),
            ) from error

    def _translated(self, error: aiodocker.DockerError) -> SandboxError:
        text = str(error.message)
        if error.status == _NO_CONNECTION:
            return self._unreachable(text)
        if "no space left on device" in text.lower():
            return Capacity("Docker's disk is full; free some space and try again.", detail=text)
        kind: type[SandboxError] = {400: InvalidRequest, 404: NotFound, 409: Conflict}.get(
            error.status, Internal
        )
        return kind(f"Docker refused it: {text.strip()}", detail=text)

    def _unreachable(self, text: str) -> SandboxError:
        path = self._host.socket
        if path is None:
            return Unavailable(
                f"Docker does not answer at {self._host.url}; check the address, its TLS files "
                "and that the engine listens there.",
                detail=text,
            )
        if not path.exists():
            return Unavailable(
                f"Docker is not running: there is no socket at {path}; start it, or give its "
                "address with --docker-host.",
                detail=text,
            )
        if not os.access(path, os.R_OK | os.W_OK):
            return Unavailable(
                f"sandboxd may not open {path}; run it as root, or add its account to the group "
                "that owns the socket.",
                detail=text,
            )
        return Unavailable(
            f"Docker does not answer on {path}; start it again (`systemctl restart docker`).",
            detail=text,
        )


class ExecStream:
    """A command that Docker's exec has started, and the connection to it."""

    def __init__(self, api: Api, execution: Any, stream: Any) -> None:
        self._api = api
        self._execution = execution
        self._stream = stream
        self.ended = asyncio.Event()
        """Its output is at its end."""

    async def read(self) -> tuple[int, bytes] | None:
        """(1 or 2 for stdout or stderr, chunk); None at the end. Back-pressure reaches it."""
        with self._api.errors():
            message = await self._stream.read_out()
        if message is None:
            self.ended.set()
            return None
        return message.stream, message.data

    async def write(self, data: bytes) -> None:
        with self._api.errors():
            await self._stream.write_in(data)

    async def resize(self, size: WindowSize) -> None:
        with self._api.errors():
            await self._execution.resize(h=size.rows, w=size.cols)

    async def exit_code(self) -> int | None:
        """None while it runs."""
        with self._api.errors():
            found = await self._execution.inspect()
        return None if found["Running"] or found["ExitCode"] is None else int(found["ExitCode"])

    async def aclose(self) -> None:
        """Idempotent. The command goes on."""
        with contextlib.suppress(SandboxError, AssertionError), self._api.errors():
            await self._stream.close()
