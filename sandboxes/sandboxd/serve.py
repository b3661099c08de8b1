"""`serve`: run the daemon on its unix socket, and on TCP if asked.

SIGTERM and SIGINT let sandboxes live: the next start adopts them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import grp
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import uvicorn
import uvloop

from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.sandboxd.app import Daemon, RequireApiKey
from sandboxes.sandboxd.engines.base import Engine
from sandboxes.sandboxd.templates.commands import (
    SYSTEM_DATA_DIR,
    default_data_dir,
    default_templates_dir,
)

__all__ = ["add_serve_command", "listen_unix", "run", "serve"]

_SHUTDOWN_S = 3
_KEEP_ALIVE_S = 75
_BACKLOG = 2048
_STARTUP_FAILED = 1

log = logging.getLogger(__name__)


def add_serve_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    data_dir = default_data_dir()
    own = Path("/run/skillyard") if data_dir == SYSTEM_DATA_DIR else data_dir / "run"
    socket_path = os.environ.get("SKILLYARD_SANDBOXD_SOCKET", own / "sandboxd.sock")
    parser = subparsers.add_parser("serve", help="run the daemon")
    parser.add_argument("--data-dir", type=Path, default=data_dir / "sandboxd", metavar="DIR")
    parser.add_argument("--engine", choices=["runc", "docker"], default="runc")
    parser.add_argument("--docker-host", metavar="URL", help="unix://PATH or tcp://HOST:PORT")
    parser.add_argument(
        "--docker-tls-dir", type=Path, metavar="DIR", help="holds ca.pem, cert.pem and key.pem"
    )
    parser.add_argument(
        "--docker-allow-private",
        action="store_true",
        help="--docker-host may have a private address, in your own network",
    )
    parser.add_argument(
        "--templates-dir", type=Path, default=default_templates_dir(), metavar="DIR"
    )
    parser.add_argument("--socket", type=Path, default=Path(socket_path), metavar="PATH")
    parser.add_argument("--socket-group", metavar="NAME", help="who may use the socket beside us")
    parser.add_argument(
        "--socket-mode",
        type=lambda text: int(text, 8),
        default=0o660 if os.geteuid() == 0 else 0o600,
        metavar="OCTAL",
        help="its permissions (now: %(default)o)",
    )
    parser.add_argument("--tcp", metavar="HOST:PORT", help="listen there too; needs a key")
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help="the key for TCP")
    parser.add_argument("--domain", help="where {port}-{id}.DOMAIN reaches this daemon")
    parser.add_argument("--access-log", action="store_true", help="log every request")
    parser.add_argument("--verbose", action="store_true", help="log more")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """The exit code; what stops it from starting is one sentence on stderr."""
    _configure_logging(logging.DEBUG if args.verbose else logging.INFO)
    try:
        if args.engine == "runc" and os.geteuid() != 0:
            _enter_namespaces(args)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(args))
    except SandboxError as error:
        sys.stderr.write(f"{error.message}\n")
        return _STARTUP_FAILED
    return 0


async def serve(args: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    api_key = _api_key(args)
    args.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        unix = stack.enter_context(listen_unix(args.socket, args.socket_group, args.socket_mode))
        tcp = stack.enter_context(_listen_tcp(args.tcp)) if args.tcp else None
        engine = make_engine(args)
        daemon = await Daemon.start(
            engine,
            args.data_dir,
            domain=args.domain,
            templates_dir=args.templates_dir,
        )
        servers = [(_server(daemon.app, args), unix)]
        if tcp is not None and api_key is not None:
            servers.append((_server(RequireApiKey(daemon.app, api_key), args), tcp))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        serving = [
            asyncio.ensure_future(server.serve(sockets=[listener])) for server, listener in servers
        ]
        log.info("sandboxd (%s) listens on %s", engine.name, args.socket)
        try:
            await asyncio.wait(
                [*serving, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for server, _ in servers:
                server.should_exit = True
            # Streams end first: a server waits for its open connections.
            await daemon.aclose()
            await asyncio.gather(*serving, return_exceptions=True)
            log.info("sandboxd has stopped; its sandboxes live on")


def _configure_logging(level: int) -> None:
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    server = logging.getLogger("uvicorn.error")
    server.addFilter(_ExpectedBreaks())
    server.setLevel(logging.WARNING)


def make_engine(args: argparse.Namespace) -> Engine:
    """The engine of this host. Imported here: it needs Linux, and tests bring their own."""
    if args.engine == "docker":
        from sandboxes.sandboxd.engines.docker.api import DEFAULT_URL, DockerHost
        from sandboxes.sandboxd.engines.docker.engine import DockerEngine
        from sandboxes.urlguard import UrlGuard

        host = DockerHost(
            url=args.docker_host or DEFAULT_URL,
            tls_dir=args.docker_tls_dir,
            guard=UrlGuard(allow_private=args.docker_allow_private),
        )
        return DockerEngine(data_dir=args.data_dir, templates_dir=args.templates_dir, host=host)
    from sandboxes.sandboxd.engines.runc.engine import RuncEngine
    from sandboxes.sandboxd.engines.runc.rootless import holder

    return RuncEngine(
        data_dir=args.data_dir, templates_dir=args.templates_dir, holder=holder.current()
    )


def _enter_namespaces(args: argparse.Namespace) -> NoReturn:
    """Without root: again, where this account is root over the ids that it may map."""
    from sandboxes.sandboxd.engines.runc.rootless import holder

    if args.socket_group is not None:
        raise InvalidRequest(
            "--socket-group needs root; leave it out, and the socket is yours alone"
        )
    # What was a default here would be another one there.
    places = [f"--data-dir={args.data_dir}", f"--templates-dir={args.templates_dir}"]
    command = [sys.executable, "-m", "sandboxes.sandboxd", *sys.argv[1:], *places]
    command += [f"--socket={args.socket}", f"--socket-mode={args.socket_mode:o}"]
    holder.enter(args.data_dir, command)


@contextlib.contextmanager
def listen_unix(path: Path, group: str | None, mode: int = 0o660) -> Iterator[socket.socket]:
    """A listening socket of that mode and the group's, removed afterwards.

    One that a dead daemon left behind is replaced; InvalidRequest while a live one answers, or if
    something else is in the way.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _clear_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        if group is not None:
            os.chown(path, -1, _group_id(group))
        path.chmod(mode)
        listener.listen(_BACKLOG)
        own = path.stat().st_ino
        yield listener
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == own:
                path.unlink()
    finally:
        listener.close()


def _clear_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise InvalidRequest(f"{path} exists and is no socket; choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be looked at: {error.strerror}") from None
    raise InvalidRequest(
        f"A sandboxd already answers on {path}; stop it, or choose another --socket"
    )


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise InvalidRequest(f"Group “{name}” does not exist; create it first") from None


@contextlib.contextmanager
def _listen_tcp(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise InvalidRequest(f"--tcp “{address}” is not of the form HOST:PORT")
    try:
        listener = socket.create_server(
            (host.strip("[]"), int(port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=_BACKLOG,
        )
    except OSError as error:
        raise InvalidRequest(f"Cannot listen on {address}: {error.strerror}") from None
    with listener:
        yield listener


def _api_key(args: argparse.Namespace) -> str | None:
    if not args.tcp:
        return None
    if args.api_key_file is None:
        raise InvalidRequest("--tcp needs --api-key-file: without a key anyone could run anything")
    try:
        key = str(args.api_key_file.read_text().strip())
    except OSError as error:
        raise InvalidRequest(f"{args.api_key_file} cannot be read: {error.strerror}") from None
    if not key:
        raise InvalidRequest(f"{args.api_key_file} is empty; put the API key in it")
    return key


class _ExpectedBreaks(logging.Filter):
    """A stream whose sandbox is gone ends in the middle on purpose; uvicorn takes that for a bug."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


class _Server(uvicorn.Server):
    """One of several in this process: signals are `serve`'s."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: object, args: argparse.Namespace) -> _Server:
    return _Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=args.access_log,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            backlog=_BACKLOG,
            ws_max_size=64 * 1024 * 1024,
        )
    )
