"""Cordoning a backend on its page: shown with its reason to whoever looks, and lifted again."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse

from console.fleet.models import Backend
from tests.console.cast import World


def test_it_is_cordoned_with_a_reason_and_lifted(world: World, client: Client) -> None:
    client.force_login(world.people["admin"])
    page = reverse("web:backend", args=[world.backend.pk])
    offered = client.get(page).content.decode()
    assert "1 session with a sandbox there goes on" in offered

    client.post(
        reverse("web:cordon-backend", args=[world.backend.pk]), {"reason": "The host is moved."}
    )
    shown = client.get(page).content.decode()
    assert "admin-acme has cordoned it" in shown
    assert "“The host is moved.”" in shown
    assert "cordon-dialog" not in shown
    assert Backend.objects.get(pk=world.backend.pk).cordoned_at is not None

    client.post(reverse("web:uncordon-backend", args=[world.backend.pk]))
    assert "has cordoned it" not in client.get(page).content.decode()
    Backend.objects.get(pk=world.backend.pk).require_open()
