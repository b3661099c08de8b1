"""Attachments and artifacts by way of a session's page, on a real sandboxd."""

from __future__ import annotations

import io
import shlex
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import reverse
from redis import Redis as BlockingRedis

from console.audit.models import AuditEntry
from console.fleet import sessions
from console.fleet.models import Attachment
from console.fleet.runtime import close_shared_runtime, shared_runtime
from console.tenants.models import Membership, Role, Space, User
from sandboxes.types import ExecRequest
from tests.console.fleet.loop import ALICE, in_loop, resolve, row_of

pytestmark = pytest.mark.sandbox


@in_loop
async def test_files_go_in_and_all_comes_out(
    real_space: Space, redis: BlockingRedis, settings: Any
) -> None:
    user = await User.objects.acreate(username="alice")
    await Membership.objects.acreate(
        user=user, tenant=real_space.tenant, space=real_space, role=Role.OPERATOR
    )
    client = AsyncClient()
    await client.aforce_login(user)
    try:
        await resolve(shared_runtime(), real_space)
        pk = (await row_of(real_space)).pk

        def address(name: str) -> str:
            return reverse(f"web:{name}", args=[pk])

        files = [SimpleUploadedFile("a.csv", b"1,2\n"), SimpleUploadedFile("b.csv", b"3,4\n")]
        await client.post(address("upload-files"), {"files": files})
        assert [row.path async for row in Attachment.objects.all()] == ["a.csv", "b.csv"]
        await client.post(address("remove-input"), {"path": "b.csv"})

        command = "ls /workspace/input; cat input/* > output/sum.csv; ln -s /etc/passwd output/pw"
        answer = await client.post(address("run"), {"command": command})
        assert "a.csv\n" in answer.content.decode()
        entry = await AuditEntry.objects.filter(action="session.exec").alatest("pk")
        assert entry.details["argv"] == shlex.join(ExecRequest.shell_argv(command))

        page = (
            await client.get(address("session"), {"path": "/workspace/output"})
        ).content.decode()
        for text in ("sum.csv", "link to", "/etc/passwd", "Download this folder as zip", "a.csv"):
            assert text in page
        assert "b.csv" not in page

        answer = await client.get(address("download-all"))
        assert answer.headers["Content-Type"] == "application/zip"
        body = b"".join([chunk async for chunk in answer])  # type: ignore[union-attr]
        archive = zipfile.ZipFile(io.BytesIO(body))
        assert archive.namelist() == ["sum.csv"]
        assert archive.read("sum.csv") == b"1,2\n"
        refused = await client.get(address("download"), {"path": "output/pw"})
        assert refused.status_code == 422
        assert "links are not followed" in refused.content.decode()
    finally:
        await sessions.destroy(
            runtime=shared_runtime(), space=real_space, session_id="talk", actor=ALICE
        )
        await close_shared_runtime()
