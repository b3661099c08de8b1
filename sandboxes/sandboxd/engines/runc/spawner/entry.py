"""What a child of the spawner does between its birth and the command's first instruction.

Two processes take part. The first is born into the exec's cgroup as host root, joins the other
cgroups and the sandbox's namespaces, and starts the second, which alone lies inside the sandbox's
pid namespace; the kernel makes that one a child of the spawner, which will reap it. The second is
visible to programs in the sandbox from its birth on. So nobody may inspect it before it is the
command (it still holds the spawner's memory), and it lets go of every descriptor first: an open
directory of the host would be a way out through /proc/self/fd.

What is read inside (passwd, group, the terminal) belongs to the sandbox's root and is not trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import termios
from dataclasses import dataclass
from typing import Any, NoReturn

from . import kernel

_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_ACCOUNT_FILE_BYTES = 4 * 1024 * 1024
_MAX_OPEN_FILES = 65536
_MAX_MESSAGE_CHARS = 1000
_OOM_SCORE_ADJ = b"500"
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
# By the spawner and by the interpreter; `main` has reset all others.
_CHANGED_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)


# The kernel also counts these for the host's root, who made the user namespaces: without a limit of
# its own, one sandbox could use up the watches of all.
_NAMESPACE_LIMITS = {"max_inotify_instances": b"128", "max_inotify_watches": b"65536"}


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds for every command of every sandbox. `user_limits` is the host's /proc/sys/user,
    where each user namespace finds its own numbers; `own_users` says that each sandbox has one. Where
    they share the host's, its limits would be the host's own and are left alone."""

    capabilities: frozenset[int]
    seccomp: bytes
    user_limits: int
    own_users: bool


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str


class Refused(Exception):
    """`kind` is that of the error in `sandboxes.errors` that sandboxd will raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def enter(
    request: dict[str, Any], fds: list[int], status: socket.socket, confinement: Confinement
) -> NoReturn:
    """In the first process. `fds`: a pidfd of the sandbox's init, then the three standard streams
    unless the request is for a terminal."""
    try:
        kernel.forbid_inspection()
        _write("/proc/self/oom_score_adj", _OOM_SCORE_ADJ)
        for path in request["cgroup_tasks"]:
            # cgroup v1's `tasks` moves one thread, without the wait that `cgroup.procs` costs.
            _write(path, b"0")
        own = _namespaces_of_this_process() if request["marked"] else None
        kernel.enter_namespaces(fds[0], own_users=confinement.own_users)
        mark = [] if own is None else [_mark(own)]
        if confinement.own_users:
            for name, limit in _NAMESPACE_LIMITS.items():
                _write(name, limit, dir_fd=confinement.user_limits)
        child = _start_second(request, fds[1:], status, confinement)
        socket.send_fds(status, [json.dumps({"child": child}).encode()], mark)
    except BaseException as error:
        _report(status, error)
    finally:
        os._exit(0)


def _namespaces_of_this_process() -> int:
    return os.open("/proc/self/ns", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _mark(own: int) -> int:
    """A namespace that this command and its descendants alone are in, where no cgroup holds them
    together. `own` was opened on the host, whose /proc still knows this process."""
    kernel.new_cgroup_namespace()
    namespace = os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=own)
    os.close(own)
    return namespace


def _write(path: str, data: bytes, dir_fd: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    os.write(fd, data)
    os.close(fd)


def _start_second(
    request: dict[str, Any], stdio: list[int], status: socket.socket, confinement: Confinement
) -> int:
    try:
        child = kernel.clone(kernel.CLONE_PARENT)
    except BlockingIOError:
        raise Refused(
            "capacity", "The sandbox has reached its limit of processes; end some of them first."
        ) from None
    except OSError as error:
        # ENOMEM is the kernel's answer for a pid namespace whose init is gone.
        raise Refused("terminal", f"The sandbox has died ({error.strerror}).") from None
    if child:
        return child
    try:
        _become(request, stdio, status, confinement)
    except BaseException as error:
        _report(status, error)
    finally:
        os._exit(1)


def _become(
    request: dict[str, Any], stdio: list[int], status: socket.socket, confinement: Confinement
) -> NoReturn:
    kernel.close_all_but({0, 1, 2, status.fileno(), *stdio})
    os.setsid()
    os.setgroups([])
    _set_ids(0, 0)
    account = find_account(request["user"])
    master = _open_terminal(account, request["terminal"]) if request["terminal"] else None
    if master is None:
        for target, source in enumerate(stdio):
            os.dup2(source, target)
    kernel.close_all_but({0, 1, 2, status.fileno(), *([] if master is None else [master])})

    allowed = confinement.capabilities if account.uid == 0 else frozenset()
    kernel.limit_bounding_set(allowed)
    os.setgroups(account.groups)
    _set_ids(account.uid, account.gid)
    kernel.set_capabilities(allowed)
    env = _environment(request["env"], account, terminal=master is not None)
    _change_directory(request["cwd"], account)
    _reset_process_state()
    kernel.no_new_privileges()
    kernel.load_seccomp_filter(confinement.seccomp)
    ready = b'{"ready": %d}' % os.getpid()
    socket.send_fds(status, [ready], [] if master is None else [master])
    _execute(request["argv"], env)


def _set_ids(uid: int, gid: int) -> None:
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # A change of ids resets this to the host's fs.suid_dumpable.
    kernel.forbid_inspection()


def find_account(user: str) -> Account:
    """By name or number, from the sandbox's own files. Refused if it is unknown there."""
    for line in _account_lines("/etc/passwd", fields=7):
        if user in (line[0], line[2]):
            try:
                uid, gid = int(line[2]), int(line[3])
            except ValueError:
                continue
            groups = [gid]
            for group in _account_lines("/etc/group", fields=4):
                if line[0] in group[3].split(",") and group[2].isdigit():
                    groups.append(int(group[2]))
            return Account(line[0], uid, gid, groups[:256], line[5] or "/")
    raise Refused(
        "invalid_request",
        f"There is no user “{user}” in the sandbox; use one of its own accounts, such as root.",
    )


def _account_lines(path: str, *, fields: int) -> list[list[str]]:
    try:
        # A FIFO or a device planted here must not hold us up.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return []
    text = b""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        while len(text) < _MAX_ACCOUNT_FILE_BYTES and (part := os.read(fd, 65536)):
            text += part
    os.close(fd)
    lines = (line.split(":") for line in text.decode("utf-8", "surrogateescape").split("\n"))
    return [line for line in lines if len(line) == fields]


def _open_terminal(account: Account, size: list[int]) -> int:
    """The master's end of a new pseudo-terminal that is this process's controlling one."""
    master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    rows, cols = size
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)
    os.fchown(slave, account.uid, -1)
    os.fchmod(slave, 0o620)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for target in range(3):
        os.dup2(slave, target)
    return master


def _environment(env: dict[str, str], account: Account, *, terminal: bool) -> dict[str, str]:
    defaults = {
        "PATH": _STANDARD_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "LANG": "C.UTF-8",
    }
    if terminal:
        defaults["TERM"] = "xterm-256color"
    return defaults | env


def _change_directory(cwd: str | None, account: Account) -> None:
    """As the account itself, so that its own permissions count."""
    try:
        os.chdir(cwd if cwd is not None else account.home)
    except OSError as error:
        if cwd is None:
            os.chdir("/")
            return
        raise Refused(
            "invalid_request",
            f"The working directory “{cwd}” can't be entered by {account.name}: "
            f"{error.strerror}; create it first or choose another.",
        ) from None


def _reset_process_state() -> None:
    for number in _CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """execvpe, and a shell's exit codes and messages where there is nothing to execute."""
    name = argv[0]
    folders = env["PATH"].split(":")
    candidates = [name] if "/" in name else [os.path.join(folder, name) for folder in folders]
    reason, code = "command not found", _NOT_FOUND
    for path in candidates:
        try:
            try:
                os.execve(path, argv, env)  # noqa: S606 - the point of it
            except OSError as error:
                if error.errno != errno.ENOEXEC:  # a script without an interpreter line
                    raise
                os.execve("/bin/sh", ["sh", path, *argv[1:]], env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason, code = os.strerror(error.errno or 0), _NOT_EXECUTABLE
    if "/" in name and code == _NOT_FOUND:
        reason = "No such file or directory"
    os.write(2, f"{name}: {reason}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _report(status: socket.socket, error: BaseException) -> None:
    kind, message = ("internal", f"{type(error).__name__}: {error}")
    if isinstance(error, Refused):
        kind, message = error.kind, str(error)
    message = message[:_MAX_MESSAGE_CHARS]
    # Whoever should hear it may be gone, and nobody else is left to tell.
    with contextlib.suppress(OSError):
        status.send(json.dumps({"error": kind, "message": message}).encode())
