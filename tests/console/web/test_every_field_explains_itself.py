"""A form of the console says beside each field what it is for."""

from __future__ import annotations

import pytest
from django import forms

from console.fleet.models import Backend
from console.tenants.access import Principal
from console.web.backends.forms import BackendForm
from console.web.catalog.views import UploadForm
from console.web.keys.views import KeyForm
from console.web.members.views import MemberForm
from console.web.spaces.views import SettingsForm, SpaceForm
from sandboxes.registry import PROVIDERS
from tests.console.cast import World


@pytest.fixture
def all_forms(world: World) -> dict[str, forms.BaseForm]:
    principal = Principal.of_user(world.people["admin"])
    found: dict[str, forms.BaseForm] = {
        "key": KeyForm(None, principal=principal),
        "member": MemberForm(None, principal=principal),
        "space": SpaceForm(None, backends=Backend.objects.all()),
        "settings": SettingsForm(None, instance=world.space),
        "upload": UploadForm(),
    }
    for provider in PROVIDERS:
        found[provider] = BackendForm(None, provider=provider)
    return found


def test_every_field_has_a_help_text(all_forms: dict[str, forms.BaseForm]) -> None:
    silent = [
        f"{name}: {field.name}"
        for name, form in all_forms.items()
        for field in form.visible_fields()
        if not field.help_text
    ]

    assert silent == []
