"""The export of one space is the import of another; what is no policy is refused by name."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from console.audit.services import SYSTEM
from console.fleet.services import create_space
from console.policies.models import NetworkPolicyRevision
from console.policies.services import current_policy, save_policy
from sandboxes.network import NetworkPolicy
from tests.console.cast import World

POLICY = NetworkPolicy.parse(
    outbound=False, inbound=True, allow=["*.pypi.org", "203.0.113.0/24"], deny=["203.0.113.9"]
)


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


def take(client: Client, world: World, **form: object) -> tuple[int, str]:
    response = client.post(reverse("web:network-import", args=[world.space.pk]), form)
    return response.status_code, response.content.decode()


def test_one_spaces_export_becomes_anothers_policy(admin: Client, world: World) -> None:
    other = create_space(
        tenant=world.tenant, name="Other", slug="other", backend=world.backend, actor=SYSTEM
    )
    save_policy(space=other, policy=POLICY, actor=SYSTEM)
    exported = admin.get(reverse("web:network-export", args=[other.pk]))
    file = SimpleUploadedFile("other-network-2.json", exported.content)

    status, text = take(admin, world, file=file)

    assert status == 200
    assert "nothing is saved yet" in text
    assert "allow *.pypi.org" in text
    assert "Imported from other-network-2.json" in text
    assert current_policy(world.space).number == 1

    form = {"save": "1", "number": 1, "inbound": "on", "allow": POLICY.allow, "deny": POLICY.deny}
    admin.post(reverse("web:network", args=[world.space.pk]), form)
    assert current_policy(world.space).policy() == POLICY


def test_pasted_text_is_taken_as_well_and_bad_entries_are_marked(
    admin: Client, world: World
) -> None:
    text = json.dumps({"outbound": False, "inbound": False, "allow": ["ok.example", "::1"]})

    status, page = take(admin, world, text=text)

    assert status == 200
    assert "IPv6 and ports" in page.split('id="allow-1-note"')[1][:200]
    assert 'name="save"' not in page


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Choose a file, or paste"),
        ("{", "This is no JSON"),
        ("[" * 100_000, "This is no JSON|must be one object"),
        ("[]", "must be one object"),
        ('{"outbound": true, "inbound": false, "egress": 1}', "no field called egress"),
        ('{"inbound": false}', "“outbound” must be there"),
        ('{"outbound": "yes", "inbound": false}', "“outbound” must be there, and be true or false"),
        ('{"outbound": true, "inbound": false, "deny": "10.0.0.0/8"}', "“deny” must be a list"),
        ('{"outbound": true, "inbound": false, "allow": [1]}', "“allow” must be a list"),
        ('{"outbound": true, "outbound": false, "inbound": true}', "“outbound” is there twice"),
        ("\ud800".encode("utf-8", "surrogatepass"), "This is no JSON"),
    ],
)
def test_what_is_no_policy_is_refused_by_name(
    text: str | bytes, sentence: str, admin: Client, world: World
) -> None:
    form = {"text": text} if isinstance(text, str) else {"file": SimpleUploadedFile("x", text)}

    status, page = take(admin, world, **form)

    assert status == 422
    assert any(words in page.replace("&quot;", '"') for words in sentence.split("|"))
    assert NetworkPolicyRevision.objects.filter(space=world.space).count() == 1


def test_a_huge_file_is_refused_without_being_read_whole(admin: Client, world: World) -> None:
    status, page = take(admin, world, file=SimpleUploadedFile("x.json", b" " * (1024 * 1024 + 1)))

    assert status == 422
    assert "larger than 1 MiB" in page
