"""The answer to somebody who guessed wrong too often (AXES_LOCKOUT_CALLABLE)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from console.tenants.lockouts import wait_s

__all__ = ["locked_page", "respond"]


def respond(request: HttpRequest, *_arguments: Any) -> HttpResponse:
    """As django-axes calls it. What else it passes depends on whether it runs under ASGI; the name that was
    tried is on the request either way."""
    credentials = getattr(request, "axes_credentials", None) or {}
    return locked_page(request, str(credentials.get("username") or ""))


def locked_page(request: HttpRequest, username: str) -> HttpResponse:
    """429 in plain words: until when, and what else can be done. It is the same for a name that nobody has,
    so that it tells nothing."""
    left_s, whole_address = wait_s(request, username)
    context = {
        "username": username,
        "whole_address": whole_address,
        "minutes": -(-left_s // 60),
        "until": timezone.now() + timedelta(seconds=left_s),
    }
    answer = render(request, "accounts/locked.html", context, status=429)
    answer.headers["Retry-After"] = str(left_s)
    answer.headers["Cache-Control"] = "no-store"
    return answer
