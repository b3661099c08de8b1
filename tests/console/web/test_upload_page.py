"""Handing in a skill: what is taken, what is refused by name, and choosing among several."""

from __future__ import annotations

import io
import re
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from skills.models import Skill
from tests.console.cast import World

SKILL_MD = "---\nname: {name}\ndescription: Does {name} things.\n---\nUse it.\n"


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


def archive(files: dict[str, str]) -> SimpleUploadedFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return SimpleUploadedFile("skill.zip", buffer.getvalue())


def submit(client: Client, **form: object) -> tuple[int, str]:
    response = client.post(reverse("web:upload"), form)
    return response.status_code, response.content.decode()


def test_an_archive_becomes_a_version_with_its_report(admin: Client, world: World) -> None:
    files = {"tidy/SKILL.md": SKILL_MD.format(name="tidy"), "tidy/requirements.txt": "rich\n"}

    status, _ = submit(admin, archive=archive(files))

    assert status == 302
    skill = Skill.objects.get(tenant=world.tenant, name="tidy")
    page = admin.get(reverse("web:skill", args=[skill.pk])).content.decode()
    assert "rich" in page
    assert "requirements.txt" in page


def test_a_pasted_skill_md_is_a_package(admin: Client, world: World) -> None:
    status, _ = submit(admin, text=SKILL_MD.format(name="pasted").replace("\n", "\r\n"))

    assert status == 302
    assert Skill.objects.filter(tenant=world.tenant, name="pasted").exists()


def test_a_folder_keeps_its_paths(admin: Client, world: World) -> None:
    folder = [
        SimpleUploadedFile("SKILL.md", SKILL_MD.format(name="folded").encode()),
        SimpleUploadedFile("run.py", b"print(1)\n"),
    ]

    status, _ = submit(admin, folder=folder, paths='["folded/SKILL.md", "folded/scripts/run.py"]')

    assert status == 302
    version = Skill.objects.get(tenant=world.tenant, name="folded").latest_version
    assert version is not None
    assert [file["path"] for file in version.inspection["files"]] == ["SKILL.md", "scripts/run.py"]


def test_a_refusal_names_the_entry_and_keeps_nothing(admin: Client, world: World) -> None:
    files = {"SKILL.md": SKILL_MD.format(name="evil"), "../../etc/cron.d/x": "boom"}

    status, text = submit(admin, archive=archive(files))

    assert status == 422
    assert "../../etc/cron.d/x" in text
    assert not Skill.objects.filter(tenant=world.tenant, name="evil").exists()


def test_of_several_skills_one_is_chosen_without_a_second_upload(
    admin: Client, world: World
) -> None:
    files = {f"{name}/SKILL.md": SKILL_MD.format(name=name) for name in ("one", "two")}

    status, text = submit(admin, archive=archive(files))
    token = re.search(r'name="kept" value="([^"]+)"', text)
    assert token is not None
    chosen, _ = submit(admin, kept=token.group(1), root="two")

    assert (status, chosen) == (422, 302)
    names = set(Skill.objects.filter(tenant=world.tenant).values_list("name", flat=True))
    assert "two" in names
    assert "one" not in names


@pytest.mark.parametrize("form", [{}, {"text": "x", "url": "https://example.com/a.zip"}])
def test_nothing_or_two_things_are_sent_back(admin: Client, form: dict[str, str]) -> None:
    status, text = submit(admin, **form)

    assert status == 422
    assert "Hand in one thing" in text
