"""Every sentence that a person can read on a page has its Chinese."""

from __future__ import annotations

import gettext
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

CHECKOUT = Path(settings.BASE_DIR)
CATALOG = Path("locale/zh_Hans/LC_MESSAGES")


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The catalog as `makemessages` would write it now, from a copy of what holds sentences."""
    if shutil.which("xgettext") is None:
        pytest.skip("needs gettext; install gettext")
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("console", "skills", "sandboxes", "templates", "static", "locale"):
        shutil.copytree(
            CHECKOUT / folder, copy / folder, ignore=shutil.ignore_patterns("examples", "*.pyc")
        )
    shutil.copy(CHECKOUT / "manage.py", copy)
    subprocess.run(
        [sys.executable, "manage.py", "makemessages", "-l", "zh_Hans", "--no-location"],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    return (copy / CATALOG / "django.po").read_text()


def test_no_sentence_lacks_its_translation(extracted: str) -> None:
    entries = [entry for entry in extracted.split("\n\n")[1:] if not entry.startswith("#~")]
    lacking = [
        entry
        for entry in entries
        if entry.rstrip().endswith(('msgstr ""', 'msgstr[0] ""')) or "#, fuzzy" in entry
    ]

    assert entries
    assert lacking == []


def test_the_compiled_catalog_is_the_written_one() -> None:
    if shutil.which("msgfmt") is None:
        pytest.skip("needs gettext; install gettext")
    folder = CHECKOUT / CATALOG
    fresh = subprocess.run(
        ["msgfmt", "-o", "-", str(folder / "django.po")], check=True, capture_output=True
    ).stdout

    with (folder / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]

    assert gettext.GNUTranslations(io.BytesIO(fresh))._catalog == compiled  # type: ignore[attr-defined]


def test_pages_follow_the_readers_language(client: Client) -> None:
    page = client.get(reverse("web:sign-in"), headers={"accept-language": "zh-CN"})

    text = page.content.decode()
    assert 'lang="zh-Hans"' in text
    assert "登录" in text
    assert "Sign in" not in text
