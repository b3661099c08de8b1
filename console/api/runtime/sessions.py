"""A session itself: resolve, look, destroy, turns, pause, history."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from console.api.pages import page_of
from console.api.runtime.base import NO_SANDBOX, SessionView
from console.api.runtime.serializers import (
    DestroyedSerializer,
    HistoryEventSerializer,
    RebuiltSerializer,
    ResolvedSerializer,
    ResolveSerializer,
    SessionRowSerializer,
    SessionSerializer,
    TurnSerializer,
)
from console.api.schema import operation, parameter
from console.api.views import SpaceView, answer
from console.fleet import renewal
from console.fleet import sessions as live
from console.fleet.models import Session, SessionEvent, SessionState
from console.tenants.access import Action
from sandboxes.errors import NotFound
from sandboxes.sessions import Resolved, TurnState

TAG = "sessions"


def resolved_json(session_id: str, resolved: Resolved) -> dict[str, Any]:
    binding = resolved.binding
    return {
        "session_id": session_id,
        "sandbox_id": resolved.sandbox.id,
        "outcome": resolved.outcome.value,
        "resumed": resolved.sandbox.resumed,
        "stale": resolved.stale,
        "fell_back": resolved.fell_back,
        "release_id": binding.release or None,
        "template_id": binding.template,
        "policy_revision": binding.policy_revision,
        "backend_id": binding.backend,
    }


def turn_json(turn: TurnState) -> dict[str, Any]:
    return {"active": turn.active, "refs": turn.refs, "may_rebuild": turn.may_rebuild}


class Sessions(SpaceView):
    needs = {"GET": Action.VIEW}

    @operation(
        "sessions_list",
        "The sessions of a space, newest first",
        tag=TAG,
        response=SessionRowSerializer,
        many=True,
        parameters=[parameter("state", enum=SessionState.values)],
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = Session.objects.filter(space=self.space)
        if state := request.GET.get("state"):
            rows = rows.filter(state=state)
        return page_of(request, rows, SessionRowSerializer)


class SessionDetail(SessionView):
    needs = {"GET": Action.VIEW, "DELETE": Action.RUN}

    @operation("sessions_get", "What is known of a session", tag=TAG, response=SessionSerializer)
    async def get(self, request: HttpRequest) -> HttpResponse:
        row = await Session.objects.filter(space=self.space, session_id=self.session_id).afirst()
        known = await self.runtime.sessions.state(key=self.key)
        if row is None:
            raise Http404
        binding = known.binding(self.key)
        return answer(
            {
                "session_id": row.session_id,
                "state": row.state,
                "bound": binding is not None,
                "sandbox_id": binding.sandbox_id if binding else None,
                "release_id": (binding.release or None) if binding else row.release_id,
                "policy_revision": binding.policy_revision if binding else None,
                "backend_id": binding.backend if binding else row.backend_id,
                "stale": known.stale is not None,
                "stale_reason": known.stale.why if known.stale else None,
                "turn": turn_json(known.turn),
                "created_by": row.created_by,
                "created_at": row.created_at,
                "used_at": row.used_at,
                "destroyed_at": row.destroyed_at,
            }
        )

    @operation(
        "sessions_destroy",
        "Destroy the session's sandbox with its files",
        tag=TAG,
        response=DestroyedSerializer,
        errors=(409, 502, 504),
        description="Idempotent. The next resolve makes a new sandbox.",
    )
    async def delete(self, request: HttpRequest) -> HttpResponse:
        destroyed = await live.destroy(
            runtime=self.runtime, space=self.space, session_id=self.session_id, actor=self.actor
        )
        await self.note("session.destroy", destroyed=destroyed)
        return answer({"destroyed": destroyed})


class Resolve(SessionView):
    needs = {"POST": Action.RUN}

    @operation(
        "sessions_resolve",
        "The session's sandbox, made, claimed or woken as needed",
        tag=TAG,
        request=ResolveSerializer,
        response=ResolvedSerializer,
        errors=(409, 502, 504),
        description="Idempotent. Consumes the turn's ticket to rebuild a stale sandbox.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(ResolveSerializer)
        opened = await self.resolve(wait_s=wanted["wait_s"])
        return answer(resolved_json(self.session_id, opened.resolved))


class Turns(SessionView):
    needs = {"POST": Action.RUN, "DELETE": Action.RUN}
    creates = True

    @operation(
        "turns_begin",
        "Begin a turn: until it ends, the sandbox is not rebuilt under it",
        tag=TAG,
        response=TurnSerializer,
        description=(
            "Each one is to be ended exactly once; with an Idempotency-Key a repeated call begins no second. "
            "The first resolve of a turn may still replace a stale sandbox. A turn that nobody ends lapses "
            "after 30 minutes."
        ),
        idempotent=True,
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        return answer(turn_json(await self.runtime.sessions.begin_turn(key=self.key)))

    @operation(
        "turns_end",
        "End a turn",
        tag=TAG,
        response=TurnSerializer,
        description="A turn that lapsed is success.",
    )
    async def delete(self, request: HttpRequest) -> HttpResponse:
        # The turn ends even if the caller does not wait for the answer.
        ended = await asyncio.shield(self.runtime.sessions.end_turn(key=self.key))
        return answer(turn_json(ended))


class Pause(SessionView):
    needs = {"POST": Action.OPERATE}

    @operation(
        "sessions_pause",
        "Freeze the session's sandbox with its memory",
        tag=TAG,
        response=SessionRowSerializer,
        errors=(409, 422, 502, 504),
        description="Idempotent. The next call wakes it.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        row = await self.row()
        if row.state not in (SessionState.ACTIVE, SessionState.PAUSED):
            raise NotFound(NO_SANDBOX)
        await live.pause(runtime=self.runtime, session=row, actor=self.actor)
        await self.note("session.pause")
        return answer(SessionRowSerializer(row).data)


class Resume(SessionView):
    needs = {"POST": Action.RUN}

    @operation(
        "sessions_resume",
        "Wake the session's sandbox where it was paused",
        tag=TAG,
        response=SessionRowSerializer,
        errors=(409, 502, 504),
        description="Idempotent. Unlike `resolve` it never makes one: 404 if it is gone.",
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        row = await self.row()
        await renewal.resume(runtime=self.runtime, session=row, actor=self.actor)
        await self.note("session.resume")
        return answer(SessionRowSerializer(row).data)


class Rebuild(SessionView):
    needs = {"POST": Action.RUN}

    @operation(
        "sessions_rebuild",
        "Put a new sandbox in the place of the session's",
        tag=TAG,
        response=RebuiltSerializer,
        errors=(409, 502, 504),
        description=(
            "Of the space's present release and policy; its files and processes go, what was handed in comes "
            "again. While a turn is in flight it is done at the next one."
        ),
    )
    async def post(self, request: HttpRequest) -> HttpResponse:
        row = await self.row()
        rebuilt = await renewal.rebuild(runtime=self.runtime, session=row, actor=self.actor)
        await self.note("session.rebuild", rebuilt=rebuilt)
        return answer({"rebuilt": rebuilt})


class History(SessionView):
    needs = {"GET": Action.VIEW}

    @operation(
        "sessions_history",
        "What happened to a session, newest first",
        tag=TAG,
        response=HistoryEventSerializer,
        many=True,
        description="created, claimed, resumed, paused, rebuilt, unbound, destroyed: why, by whom.",
    )
    def get(self, request: HttpRequest, session: str) -> HttpResponse:
        rows = SessionEvent.objects.filter(session__space=self.space, session__session_id=session)
        return page_of(request, rows, HistoryEventSerializer)
