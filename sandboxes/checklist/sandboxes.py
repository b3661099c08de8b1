"""Points about a sandbox itself: it sleeps, is found by its tags, keeps users apart, and answers."""

from __future__ import annotations

import uuid

from sandboxes.checklist.network import dial
from sandboxes.checklist.run import Run, Skipped
from sandboxes.types import (
    ListFilter,
    SandboxState,
)
from sandboxes.wire.messages import ENVD_PORT

__all__ = ["envd_answers", "metadata_finds_it", "pause_keeps_memory", "users_and_uploads"]

_TICKER = (
    "setsid nohup bash -c 'while :; do echo >> /tmp/tick; sleep 0.1; done' "
    ">/dev/null 2>&1 </dev/null & echo $! > /tmp/ticker"
)


async def pause_keeps_memory(run: Run) -> None:
    run.need("pause")
    box = await run.sandbox()
    await run.text(box, f"echo kept > /tmp/kept; {_TICKER}")
    pid = await run.text(box, "sleep 0.5; cat /tmp/ticker")
    await run.pause(box)
    state = (await run.client.get(box.id)).state
    run.expect(state is SandboxState.PAUSED, "it is told as paused", f"It is told as {state}.")
    listed = [info.id async for info in run.client.list(ListFilter(metadata=run.tags))]
    if box.id in listed:
        run.note("it is listed while paused")
    else:
        run.note("it is not listed while paused, but found by its id")
    awake = await run.wake(box)
    kept = await run.text(awake, "cat /tmp/kept")
    run.expect(kept == "kept", "its file is there after waking", "Its file is gone after waking.")
    script = f"kill -0 {int(pid)} && a=$(wc -c < /tmp/tick) && sleep 1 && test $a -lt $(wc -c < /tmp/tick)"
    await run.text(awake, script)
    run.note(f"its background process {int(pid)} goes on after waking")


async def metadata_finds_it(run: Run) -> None:
    session, other = uuid.uuid4().hex, uuid.uuid4().hex
    odd = "a b/中文 & x=y+%"
    box = await run.sandbox(tags={"check_session": session, "check_odd": odd})
    await run.sandbox(tags={"check_session": other})
    info = await run.client.get(box.id)
    run.expect(
        info.metadata.get("check_odd") == odd,
        "odd characters come back as they were",
        f"The metadata came back as {info.metadata.get('check_odd')!r}.",
    )
    wanted = {**run.tags, "check_session": session}
    found = [info.id async for info in run.client.list(ListFilter(metadata=wanted))]
    run.expect(
        found == [box.id], "all its tags together find it and nothing else", f"Found {found}."
    )
    both = [info.id async for info in run.client.list(ListFilter(metadata=run.tags))]
    run.expect(len(set(both)) >= 2, f"the common tags find {len(both)}", "They find too few.")


async def users_and_uploads(run: Run) -> None:
    box = await run.sandbox()
    uid = await run.text(box, "id -u")
    run.expect(
        uid != "0", f"commands run as uid {uid}", "Commands run as root, though not asked to."
    )
    run.expect(
        await run.text(box, "id -u", user="root") == "0",
        "root is there for installs",
        "Commands cannot run as root, so nothing could be installed.",
    )
    run.need("files")
    assert run.client.files is not None  # noqa: S101 - as the capabilities say
    data = bytes(range(256)) * 64
    await run.client.files.write(box, "/home/user/check.bin", data)
    async with run.client.files.read(box, "/home/user/check.bin") as chunks:
        back = b"".join([chunk async for chunk in chunks])
    run.expect(
        back == data, f"{len(data)} bytes came back as they went", "A file came back changed."
    )


async def envd_answers(run: Run) -> None:
    if run.client.inbound is None:
        raise Skipped("This backend serves no ports from outside.", expected=True)
    box = await run.sandbox()
    status = await dial(run.client.inbound, box, ENVD_PORT, token=box.traffic_token, path="/health")
    run.expect(
        200 <= status < 300,
        f"GET :{ENVD_PORT}/health answers {status}",
        f"GET :{ENVD_PORT}/health answers {status}; does the template carry envd?",
    )
