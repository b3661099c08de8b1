"""A list page asks the database a fixed number of questions, however long the list is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.audit.services import SYSTEM, record
from console.fleet.models import Session
from skills.models import (
    Build,
    BuildSkill,
    PlanRevision,
    Release,
    ReleaseSkill,
    Skill,
    SkillVersion,
)
from tests.console.cast import World

MOST_QUERIES = 12
ROWS = 60


@pytest.fixture
def crowded(world: World) -> World:
    skills = Skill.objects.bulk_create(
        Skill(tenant=world.tenant, name=f"skill-{n}") for n in range(ROWS)
    )
    versions = SkillVersion.objects.bulk_create(
        SkillVersion(
            skill=skill,
            number=1,
            digest=f"{n:064d}",
            description="x",
            size_bytes=1,
            file_count=1,
            inspection=world.version.inspection,
        )
        for n, skill in enumerate(skills)
    )
    plans = PlanRevision.objects.bulk_create(
        PlanRevision(version=version, number=1, content={}) for version in versions
    )
    builds = Build.objects.bulk_create(
        Build(space=world.space, state="failed") for _ in range(ROWS)
    )
    releases = Release.objects.bulk_create(
        Release(
            space=world.space,
            generation=n + 2,
            backend=world.backend,
            fingerprint="f",
            planned_name=f"many-{n}",
            snapshot_id=f"snap-{n}",
            state="superseded",
        )
        for n in range(ROWS)
    )
    for parent, model, key in ((builds, BuildSkill, "build"), (releases, ReleaseSkill, "release")):
        model.objects.bulk_create(
            model(position=0, version=versions[n], plan=plans[n], **{key: row})
            for n, row in enumerate(parent)
        )
    Session.objects.bulk_create(
        Session(space=world.space, session_id=f"s-{n}", backend=world.backend, release=releases[n])
        for n in range(ROWS)
    )
    for n in range(ROWS):
        record(actor=SYSTEM, action="x.y", target=str(n), tenant_id=world.tenant.pk)
    return world


@pytest.mark.parametrize(
    "name",
    [
        "spaces",
        "catalog",
        "builds",
        "releases",
        "sessions",
        "backends",
        "members",
        "member-security",
        "keys",
        "audit",
        "reconcile",
        "space-skills",
        "space-builds",
        "space-releases",
        "space-sessions",
        "network",
    ],
)
def test_a_list_page_is_a_fixed_number_of_queries(
    name: str, crowded: World, client: Client, django_assert_max_num_queries: Any
) -> None:
    client.force_login(crowded.people["admin"])
    of_space = name.startswith("space-") or name == "network"
    url = reverse(f"web:{name}", args=[crowded.space.pk] if of_space else [])

    # The first request of a sign-in also writes down that there is one.
    client.get(reverse("web:profile"))

    with django_assert_max_num_queries(MOST_QUERIES):
        response = client.get(url)

    assert response.status_code == 200
