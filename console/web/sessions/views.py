"""One session: its files and commands, starting and ending it. The list is in `lists.py`."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.audit.services import record
from console.fleet import artifacts
from console.fleet import sessions as live
from console.fleet.models import Session, SessionState
from console.fleet.runtime import shared_runtime
from console.fleet.workspace import (
    INPUT_DIR,
    OUTPUT_DIR,
    WORKSPACE,
    command_argv,
    files_of,
    list_files,
    read_file,
    script_argv,
    workspace_path,
)
from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.types import ExecRequest, ExecResult, FileEntry
from skills.ids import new_id
from skills.models import SKILLS_ROOT

OUTPUT_CAP_BYTES = 256 * 1024
RUN_TIMEOUT_S = 120.0
PREVIEW_PORTS = ("3000", "8000", "8080")
"""Where web servers usually listen; any other port works by its address."""
SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".sh")


def _session(request: ConsoleRequest, pk: str, action: Action) -> Session:
    session = (
        Session.objects.select_related("space__backend", "backend", "release").filter(pk=pk).first()
    )
    if session is None:
        raise Http404
    request.principal.space(session.space_id, action)
    return session


def _scripts(session: Session) -> list[tuple[str, str]]:
    """(skill name, script) of everything runnable that the session's release carries."""
    if session.release is None:
        return []
    return [
        (item.version.skill.name, file["path"])
        for item in session.release.items.select_related("version__skill")
        for file in item.version.inspection.get("files", ())
        if file["path"].endswith(SCRIPT_SUFFIXES)
    ]


@require_POST
async def start(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """Start a session by hand, under an id of our own making."""
    space = await sync_to_async(request.principal.space)(space_id, Action.RUN)
    session_id = new_id("try")
    await live.resolve(
        runtime=shared_runtime(),
        space=space,
        session_id=session_id,
        actor=request.principal.actor,
    )
    session = await Session.objects.aget(space=space, session_id=session_id)
    await sync_to_async(messages.success)(request, _("The session is running."))
    return redirect("web:session", session.pk)


async def session(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await sync_to_async(_session)(request, pk, Action.VIEW)
    return await _render(request, row)


async def _render(
    request: ConsoleRequest,
    row: Session,
    *,
    result: ExecResult | None = None,
    command: str = "",
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    space = row.space
    folder = workspace_path(request.GET.get("path", WORKSPACE))
    entries, trouble = [], ""
    if row.state == SessionState.ACTIVE:
        try:
            entries = await _list(row, folder)
        except SandboxError as error:
            trouble = error.message
    context = {
        "session": row,
        "space": space,
        "folder": folder,
        "parent": posixpath.dirname(folder) if folder != WORKSPACE else "",
        "entries": entries,
        "attachments": [file async for file in row.attachments.all()[:100]],
        "output_dir": OUTPUT_DIR,
        "trouble": trouble,
        "result": result,
        "stdout": result.stdout.decode(errors="replace") if result else "",
        "stderr": result.stderr.decode(errors="replace") if result else "",
        "command": command,
        "problem": problem,
        "scripts": await sync_to_async(_scripts)(row),
        "preview_ports": PREVIEW_PORTS,
        "history": [event async for event in row.events.all()[:30]],
        "may_run": request.principal.may(Action.RUN, tenant_id=space.tenant_id, space_id=space.pk),
        "may_operate": request.principal.may(
            Action.OPERATE, tenant_id=space.tenant_id, space_id=space.pk
        ),
    }
    return await sync_to_async(page)(
        request, "sessions/session.html", context, area="sessions", partial="run", status=status
    )


async def _list(row: Session, folder: str) -> list[FileEntry]:
    """Entries of a folder, without waking or making a sandbox that is not there."""
    client = await shared_runtime().client(row.space.backend)
    key = live.session_key(row.space, row.session_id)
    sandbox = await shared_runtime().sessions.lookup(
        key=key, client=client, backend=row.space.backend_id
    )
    if sandbox is None:
        raise NotFound("The session has no sandbox now; run something and it gets a new one.")
    return await list_files(files_of(client), sandbox, folder)


async def _live(request: ConsoleRequest, row: Session) -> live.LiveSession:
    return await live.resolve(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        actor=request.principal.actor,
    )


@require_POST
async def run(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Run a skill's script or a command line, as the session's user in /workspace."""
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    script = request.POST.get("script", "")
    text = request.POST.get("args" if script else "command", "").strip()
    try:
        opened = await _live(request, row)
        argv = await _argv(opened, script, text)
        result = await opened.client.run(
            opened.sandbox,
            ExecRequest(argv=command_argv(argv), cwd=WORKSPACE, timeout_s=RUN_TIMEOUT_S),
            max_output_bytes=OUTPUT_CAP_BYTES,
        )
    except SandboxError as error:
        return await _render(request, row, problem=error.message, command=text, status=422)
    await sync_to_async(record)(
        actor=request.principal.actor,
        action="session.exec",
        target=row.session_id,
        tenant_id=row.space.tenant_id,
        space_id=row.space_id,
        details={"argv": shlex.join(argv)[:500], "exit_code": result.exit_code},
    )
    await live.touch(space_id=row.space_id, session_id=row.session_id)
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    return await _render(request, row, result=result, command=shlex.join(argv))


async def _argv(opened: live.LiveSession, script: str, text: str) -> tuple[str, ...]:
    if not script:
        if not text:
            raise InvalidRequest("Choose a script, or type a command.")
        return ExecRequest.shell_argv(text)
    skill, _slash, path = script.partition("/")
    try:
        args = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidRequest(f"The arguments can't be split: {error}. Close the quotes.") from None
    return await script_argv(
        files=files_of(opened.client),
        sandbox=opened.sandbox,
        skill_path=f"{SKILLS_ROOT}/{skill}",
        script=path,
        args=args,
    )


@require_POST
async def upload(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Stage files under /workspace/input."""
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    files: list[UploadedFile[Any]] = request.FILES.getlist("files")
    if not files:
        await sync_to_async(messages.warning)(request, _("Choose a file to upload."))
        return redirect("web:session", pk)
    for file in files:
        await live.stage(
            runtime=shared_runtime(),
            space=row.space,
            session_id=row.session_id,
            name=file.name or "",
            data=_chunks(file),
            actor=request.principal.actor,
        )
    await sync_to_async(messages.success)(
        request, _("%(count)d file(s) are in /workspace/input.") % {"count": len(files)}
    )
    return redirect(reverse("web:session", args=[pk], query={"path": INPUT_DIR}))


@require_POST
async def remove_input(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Remove an attachment, from the sandbox too."""
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    name = request.POST.get("path", "")
    await live.unstage(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        name=name,
        actor=request.principal.actor,
    )
    await sync_to_async(messages.success)(request, _("%(name)s is removed.") % {"name": name})
    return redirect("web:session", pk)


async def _chunks(file: UploadedFile[Any]) -> AsyncIterator[bytes]:
    for chunk in file.chunks():
        yield chunk


async def download(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """One file under /workspace, as an attachment."""
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    path = workspace_path(request.GET.get("path", ""))
    opened = await _live(request, row)
    reading = read_file(files_of(opened.client), opened.sandbox, path)
    _entry, chunks = await reading.__aenter__()

    async def body() -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await reading.__aexit__(None, None, None)

    return _attachment(body(), posixpath.basename(path), "application/octet-stream")


async def download_all(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """The whole of /workspace/output, zipped while it is sent."""
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    opened = await _live(request, row)
    chunks = await artifacts.zip_stream(client=opened.client, sandbox=opened.sandbox)
    return _attachment(chunks, f"{row.session_id[:60]}-output.zip", "application/zip")


def _attachment(body: AsyncIterator[bytes], name: str, kind: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(body, content_type=kind)
    response.headers["Content-Disposition"] = content_disposition_header(True, name)
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@require_POST
async def pause(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await sync_to_async(_session)(request, pk, Action.OPERATE)
    await live.pause(runtime=shared_runtime(), session=row, actor=request.principal.actor)
    await sync_to_async(messages.success)(
        request, _("The session is paused; its next call wakes it where it was.")
    )
    return redirect("web:session", pk)


@require_POST
async def destroy(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await sync_to_async(_session)(request, pk, Action.RUN)
    await live.destroy(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        actor=request.principal.actor,
    )
    await sync_to_async(messages.success)(request, _("The sandbox and its files are gone."))
    return redirect("web:session", pk)
