"""One session: its page, starting it, and what is done to it as a whole. The list is in `lists.py`, its files
in `files.py`, commands in `commands.py`."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from console.fleet import renewal
from console.fleet import sessions as live
from console.fleet.models import Session
from console.fleet.runtime import shared_runtime
from console.tenants.access import Action
from console.web.requests import ConsoleRequest
from console.web.sessions.common import find, note
from console.web.sessions.page import render
from skills.ids import new_id


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
    await note(request, await find(request, session.pk, Action.RUN), "start")
    await sync_to_async(messages.success)(request, _("The session is running."))
    return redirect("web:session", session.pk)


@require_safe
async def session(request: ConsoleRequest, pk: str) -> HttpResponse:
    return await render(request, await find(request, pk, Action.VIEW))


@require_POST
async def pause(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await find(request, pk, Action.OPERATE)
    await live.pause(runtime=shared_runtime(), session=row, actor=request.principal.actor)
    await note(request, row, "pause", used=False)
    await sync_to_async(messages.success)(
        request, _("The session is paused; its next call wakes it where it was.")
    )
    return redirect("web:session", pk)


@require_POST
async def resume(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await find(request, pk, Action.RUN)
    await renewal.resume(runtime=shared_runtime(), session=row, actor=request.principal.actor)
    await note(request, row, "resume")
    await sync_to_async(messages.success)(request, _("The session is awake, where it was."))
    return redirect("web:session", pk)


@require_POST
async def rebuild(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await find(request, pk, Action.RUN)
    done = await renewal.rebuild(
        runtime=shared_runtime(), session=row, actor=request.principal.actor
    )
    await note(request, row, "rebuild", done=done)
    if done:
        text = _("The session has a new sandbox, of the space's present release and policy.")
        await sync_to_async(messages.success)(request, text)
    else:
        text = _("A turn is under way and keeps its sandbox; the next turn begins with a new one.")
        await sync_to_async(messages.info)(request, text)
    return redirect("web:session", pk)


@require_POST
async def destroy(request: ConsoleRequest, pk: str) -> HttpResponse:
    row = await find(request, pk, Action.RUN)
    await live.destroy(
        runtime=shared_runtime(),
        space=row.space,
        session_id=row.session_id,
        actor=request.principal.actor,
    )
    await note(request, row, "destroy", used=False)
    await sync_to_async(messages.success)(request, _("The sandbox and its files are gone."))
    return redirect("web:session", pk)
