"""The log of a build: whole lines, batches, a cap, no secret."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError
from hypothesis import given
from hypothesis import strategies as st

from console.tenants.models import Space
from skills.log import BuildLog, LineAssembler, Redactor
from skills.models import Build, BuildLogLine


@pytest.fixture
def build(space: Space) -> Build:
    return Build.objects.create(space=space)


def rows(build: Build) -> list[tuple[str, str, str]]:
    return list(BuildLogLine.objects.filter(build=build).values_list("step", "stream", "text"))


@given(st.lists(st.text(alphabet="ab漢\x1b[", max_size=6), max_size=6), st.integers(1, 5))
def test_lines_are_whole_however_the_bytes_arrive(lines: list[str], size: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    assembler = LineAssembler()
    found: list[str] = []
    for start in range(0, len(data), size):
        found += assembler.feed(data[start : start + size])
    assert found + assembler.feed(b"", final=True) == lines


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"10%\r50%\r100%\n", ["100%"]),
        (b"windows\r\n", ["windows"]),
        (b"nul\0byte\n", ["nulbyte"]),
        (b"\xff\n", ["\ufffd"]),
        (b"no end", ["no end"]),
        (b"\x1b[32mgreen\x1b[0m\n", ["\x1b[32mgreen\x1b[0m"]),
    ],
)
def test_what_terminals_do_is_done(data: bytes, expected: list[str]) -> None:
    assert LineAssembler().feed(data, final=True) == expected


def test_an_endless_line_is_cut() -> None:
    lines = LineAssembler().feed(b"x" * 20_000, final=True)
    assert all(len(line) < 8_100 for line in lines)


def test_secrets_and_passwords_in_urls_are_masked() -> None:
    redact = Redactor(["s3cret-api-key", "short"])
    assert redact("key=s3cret-api-key, short") == "key=********, short"
    assert redact("https://me:pass@host/x") == "https://********@host/x"


def test_output_is_written_in_batches_by_stream(build: Build) -> None:
    async def work() -> None:
        async with BuildLog(build.pk, Redactor()) as log:
            log.step = "install"
            log.say("begin")
            log.output("stdout", ["a", "b"])
            log.output("stderr", ["c"])

    async_to_sync(work)()
    assert rows(build) == [
        ("install", "info", "begin"),
        ("install", "stdout", "a\nb"),
        ("install", "stderr", "c"),
    ]


def test_output_is_there_before_the_command_ends(build: Build) -> None:
    async def work() -> int:
        async with BuildLog(build.pk, Redactor()) as log:
            log.say("begin")
            for _ in range(100):
                await asyncio.sleep(0.05)
                if await BuildLogLine.objects.filter(build=build).acount():
                    return 1
        return 0

    assert async_to_sync(work)() == 1


def test_past_its_cap_only_the_end_is_kept_and_the_gap_is_told(build: Build) -> None:
    async def work() -> None:
        async with BuildLog(build.pk, Redactor(), max_bytes=1000) as log:
            log.output("stdout", [f"line {n} " + "x" * 90 for n in range(2000)])
            log.end_command()
            log.say("done")

    async_to_sync(work)()
    text = "\n".join(row[2] for row in rows(build))
    assert "line 0 " in text
    assert "line 1999 " in text
    assert "line 1000 " not in text
    assert "bytes of output left out" in text
    assert "The log has reached 1,000 bytes" in text
    assert text.endswith("done")
    assert len(text) < 100_000


def test_a_log_that_cannot_be_written_is_late_but_not_lost(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = BuildLog._write, iter([True, False])

    def failing_once(log: BuildLog, pending: list[tuple[str, str, str]]) -> None:
        if next(failures, False):
            raise DatabaseError("database is locked")
        write(log, pending)

    monkeypatch.setattr(BuildLog, "_write", failing_once)

    async def work() -> None:
        async with BuildLog(build.pk, Redactor()) as log:
            log.say("first")
            await log.flush()
            log.say("second")

    async_to_sync(work)()
    assert rows(build) == [("", "info", "first\nsecond")]
