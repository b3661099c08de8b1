"""Where one machine's Skillyard keeps its things, and who owns which of them.

<data>/             0755 root         /var/lib/skillyard, or SKILLYARD_DATA_DIR
├── console/        0700 service      database, uploads, static files, secrets
├── redis/          0700 service      Redis' socket and append-only file
├── logs/           0700 root         one file a process
├── sandboxd/       0700 root         sandboxes and snapshots
└── templates/      0755 root         base images
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet

from console.embedded.accounts import Account

__all__ = ["SYSTEM_DATA_DIR", "Layout"]

SYSTEM_DATA_DIR = Path("/var/lib/skillyard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All paths, from the data directory and the environment."""

    data: Path
    templates: Path
    socket: Path
    """sandboxd's."""

    @classmethod
    def of(cls, data: Path) -> Layout:
        if "SKILLYARD_SANDBOXD_SOCKET" in os.environ:
            socket = Path(os.environ["SKILLYARD_SANDBOXD_SOCKET"])
        elif data == SYSTEM_DATA_DIR:
            socket = Path("/run/skillyard/sandboxd.sock")
        else:
            socket = data / "run" / "sandboxd.sock"
        templates = os.environ.get("SKILLYARD_TEMPLATES_DIR") or data / "templates"
        return cls(data=data, templates=Path(templates), socket=socket)

    @property
    def console(self) -> Path:
        return self.data / "console"

    @property
    def redis(self) -> Path:
        return self.data / "redis"

    @property
    def redis_socket(self) -> Path:
        return self.redis / "redis.sock"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def sandboxd(self) -> Path:
        return self.data / "sandboxd"

    @property
    def lock(self) -> Path:
        return self.data / "up.lock"

    @property
    def first_login(self) -> Path:
        return self.console / "first-login.json"

    @property
    def template_status(self) -> Path:
        """Beside `console`, not in it: root writes it, and must not be led astray by a link there."""
        return self.data / "template-build.json"

    def prepare(self, account: Account) -> None:
        """Make the folders with their owners, and the secrets on the first run. Idempotent."""
        self.data.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        for folder in (self.console, self.redis):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
            account.own(folder)
        # A command of manage.py that root ran before the first start has left them as root's.
        for database in self.console.glob("skillyard.sqlite3*"):
            account.own(database)
        for folder in (self.console / "static", self.console / "media"):
            folder.mkdir(mode=0o700, exist_ok=True)
            account.own(folder)
        self._secret("secret_key", secrets.token_urlsafe(64), account)
        self._secret("field_keys", Fernet.generate_key().decode(), account)

    def _secret(self, name: str, value: str, account: Account) -> None:
        """Written whole or not at all: a lost key is lost data."""
        path = self.console / name
        if path.exists():
            return
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as output:
            output.write(value)
            output.flush()
            os.fsync(descriptor)
        account.own(draft)
        draft.rename(path)

    def environment(self) -> dict[str, str]:
        """What every process of the product is told; the operator's own settings come first."""
        environ = dict(os.environ)
        environ.setdefault("REDIS_URL", f"unix://{self.redis_socket}")
        for name in ("secret_key", "field_keys"):
            variable = f"SKILLYARD_{name.upper()}"
            if variable not in environ and f"{variable}_FILE" not in environ:
                environ[f"{variable}_FILE"] = str(self.console / name)
        environ.update(
            DJANGO_SETTINGS_MODULE="console.settings",
            SKILLYARD_DATA_DIR=str(self.data),
            SKILLYARD_TEMPLATES_DIR=str(self.templates),
            SKILLYARD_SANDBOXD_SOCKET=str(self.socket),
            PYTHONUNBUFFERED="1",
            LANG="C.UTF-8",
        )
        return environ
