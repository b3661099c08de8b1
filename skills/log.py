"""A build's live log: rows of whole lines, written in batches, limited in size, without secrets."""

from __future__ import annotations

import asyncio
import codecs
import logging
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db import DatabaseError

from skills.models import BuildLogLine

__all__ = ["FLUSH_S", "BuildLog", "LineAssembler", "Redactor"]

log = logging.getLogger(__name__)

FLUSH_S = 0.3
MAX_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 64 * 1024
_MAX_LINE = 8_000
_URL_PASSWORD = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/@:]+:[^\s/@]+@", re.IGNORECASE)


class Redactor:
    """Replaces known secrets, and passwords in URLs, by asterisks. Values under 8 characters are
    not searched for: they would hide ordinary text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        long = sorted({s for s in secrets if len(s) >= 8}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, long))) if long else None

    def __call__(self, text: str) -> str:
        if self._secrets is not None:
            text = self._secrets.sub("********", text)
        return _URL_PASSWORD.sub(r"\g<scheme>********@", text)


class LineAssembler:
    """Bytes of one stream to whole lines. A carriage return starts the line over, as a terminal
    would; a line that never ends is cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        text = self._rest + self._decoder.decode(data, final)
        *lines, self._rest = text.replace("\r\n", "\n").split("\n")
        if len(self._rest) > _MAX_LINE:
            lines.append(self._rest)
            self._rest = ""
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return [self._clean(line) for line in lines]

    def _clean(self, line: str) -> str:
        line = line.rstrip("\r").rpartition("\r")[2].replace("\0", "")
        return line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " …"


@dataclass(slots=True)
class BuildLog:
    """Use as an async context manager: leaving it writes what is left.

    Past `max_bytes` output is counted instead of stored, except its last 64 KB, which hold the error;
    the product's own lines (`info`) are always stored.
    """

    build_id: str
    redact: Redactor
    max_bytes: int = MAX_BYTES
    step: str = ""
    _written: int = 0
    _dropped: int = 0
    _pending: list[tuple[str, str, str]] = field(default_factory=list)
    _tail: deque[tuple[str, str, str]] = field(default_factory=deque)
    _tail_bytes: int = 0
    _flusher: asyncio.Task[None] | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __aenter__(self) -> BuildLog:
        self._flusher = asyncio.create_task(self._flush_regularly())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        self.end_command()
        await self.flush()

    def say(self, text: str) -> None:
        """The product's own words."""
        self._pending.append((self.step, "info", self.redact(text)))

    def output(self, stream: str, lines: Iterable[str]) -> None:
        """Lines that a command wrote."""
        for line in lines:
            text = self.redact(line)
            size = len(text.encode()) + 1
            if self._written + size <= self.max_bytes:
                self._written += size
                self._pending.append((self.step, stream, text))
                continue
            if not self._dropped and not self._tail:
                self.say(
                    f"The log has reached {self.max_bytes:,} bytes; of what follows only the end of "
                    "each command's output is kept."
                )
            self._tail.append((self.step, stream, text))
            self._tail_bytes += size
            while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
                gone = len(self._tail.popleft()[2].encode()) + 1
                self._tail_bytes -= gone
                self._dropped += gone

    def end_command(self) -> None:
        """Write the kept end of a command's output, with how much was left out before it."""
        if self._dropped:
            self.say(f"… {self._dropped:,} bytes of output left out …")
        self._pending.extend(self._tail)
        self._tail.clear()
        self._dropped = self._tail_bytes = 0

    async def flush(self) -> None:
        async with self._writing:
            pending, self._pending = self._pending, []
            if not pending:
                return
            try:
                await sync_to_async(self._write)(pending)
            except DatabaseError:
                # A log that is late is no reason to lose a build.
                log.exception("the log of build %s can't be written now", self.build_id)
                self._pending[:0] = pending

    def _write(self, pending: list[tuple[str, str, str]]) -> None:
        rows: list[BuildLogLine] = []
        for step, stream, text in pending:
            last = rows[-1] if rows else None
            if last is not None and (last.step, last.stream) == (step, stream):
                last.text += "\n" + text
            else:
                rows.append(
                    BuildLogLine(build_id=self.build_id, step=step, stream=stream, text=text)
                )
        BuildLogLine.objects.bulk_create(rows)

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()
