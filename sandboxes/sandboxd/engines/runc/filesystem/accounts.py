"""The accounts that a sandbox knows, read from its own /etc/passwd and /etc/group.

Both files are written by whoever controls the sandbox: they are size-capped, and a line that
makes no sense is skipped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.sandboxd.engines.runc.filesystem.root import Root, opened

__all__ = ["ID_COUNT", "Account", "Accounts"]

ID_COUNT = 65536
"""How many uids and gids a sandbox has, from 0."""

_MAX_BYTES = 1 << 20
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    home: str


class Accounts:
    """`id_shift` is what a sandbox's uid and gid have to be raised by to be the host's."""

    def __init__(self, root: Root, *, id_shift: int) -> None:
        self._shift = id_shift
        self._accounts: dict[str, Account] = {}
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        for fields in _lines(root, "/etc/passwd", 7):
            uid, gid = _number(fields[2]), _number(fields[3])
            if uid is not None and gid is not None:
                self._accounts.setdefault(fields[0], Account(uid, gid, fields[5] or "/"))
                self._users.setdefault(uid, fields[0])
        for fields in _lines(root, "/etc/group", 4):
            gid = _number(fields[2])
            if gid is not None:
                self._groups.setdefault(gid, fields[0])

    def account(self, user: str) -> Account:
        """By name or by uid as text. InvalidRequest if the sandbox does not know it."""
        account = self._accounts.get(user)
        if account is None and (uid := _number(user)) is not None:
            account = self._accounts.get(self._users.get(uid, ""), Account(uid, uid, "/"))
        if account is None:
            raise InvalidRequest(
                f"The sandbox has no account {user!r}; use one from its /etc/passwd, such as user"
            )
        return account

    def host_ids(self, user: str) -> tuple[int, int]:
        """uid and gid as the host sees them."""
        account = self.account(user)
        return account.uid + self._shift, account.gid + self._shift

    def user_name(self, host_uid: int) -> str:
        uid = self._inside(host_uid)
        return self._users.get(uid, str(uid))

    def group_name(self, host_gid: int) -> str:
        gid = self._inside(host_gid)
        return self._groups.get(gid, str(gid))

    def _inside(self, host_id: int) -> int:
        inside = host_id - self._shift
        return inside if 0 <= inside < ID_COUNT else _NOBODY


def _number(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < ID_COUNT:
        return int(text)
    return None


def _lines(root: Root, path: str, fields: int) -> list[list[str]]:
    try:
        with opened(root.open_file(path, os.O_RDONLY)) as fd:
            text = os.pread(fd, _MAX_BYTES, 0).decode(errors="replace")
    except (OSError, SandboxError):
        return []  # a sandbox without accounts still has uids
    split = (line.split(":") for line in text.splitlines())
    return [line for line in split if len(line) >= fields]
