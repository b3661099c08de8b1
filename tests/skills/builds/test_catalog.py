"""Packages into the catalog: kept once, by content."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.audit.models import AuditEntry
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest
from skills import services, uploads
from skills.models import PlanRevision, Skill, SkillVersion
from skills.package import PackageRefused, RootChoiceNeeded, UploadedFile
from skills.plan import Plan, Step, StepKind
from tests.skills.world import ACTOR, add_skill

SKILL = b"---\nname: one\ndescription: Does one thing.\n---\n# one\n"


def test_a_package_becomes_a_version_with_a_plan_and_an_inspection(
    space: Space, media: Path
) -> None:
    version = add_skill(space, "one", {"requirements.txt": "six==1.16.0\n"})
    assert (version.number, version.skill.name, version.file_count) == (1, "one", 2)
    assert version.current_plan.plan().items(StepKind.PIP) == ("six==1.16.0",)
    assert version.inspection["digest"] == version.digest
    assert (media / version.archive.name).stat().st_size > 0
    with services.open_package(version) as package:
        assert package.digest == version.digest
    entry = AuditEntry.objects.get(action="skill.add")
    assert (entry.actor, entry.target) == ("tester", "one #1")


def test_the_same_content_is_the_same_version(space: Space) -> None:
    first = add_skill(space, "one")
    assert add_skill(space, "one") == first
    assert SkillVersion.objects.count() == 1
    second = add_skill(space, "one", {"more.txt": "x"})
    assert (second.number, second.skill) == (2, first.skill)
    assert first.skill.latest_version == second


def test_a_truncated_archive_is_written_again(space: Space, media: Path) -> None:
    version = add_skill(space, "one")
    path = media / version.archive.name
    path.chmod(0o600)
    path.write_bytes(b"torn")
    SkillVersion.objects.all().delete()
    again = add_skill(space, "one")
    assert again.archive.name == version.archive.name
    with services.open_package(again) as package:
        assert package.digest == again.digest


def test_a_refused_package_leaves_nothing(space: Space, media: Path) -> None:
    with pytest.raises(PackageRefused):
        services.add_package(tenant=space.tenant, source=b"---\nname: x\n---\n", actor=ACTOR)
    assert Skill.objects.count() == 0
    assert not media.exists()


@pytest.mark.parametrize("name", ["..", ".hidden", "-rf", "a/b", "a b$(id)", "x" * 65])
def test_a_name_that_is_no_folder_s_is_refused(space: Space, name: str) -> None:
    source = f"---\nname: '{name}'\ndescription: Does a thing.\n---\n# x\n".encode()
    with pytest.raises((InvalidRequest, PackageRefused)):
        services.add_package(tenant=space.tenant, source=source, actor=ACTOR)
    assert Skill.objects.count() == 0


def test_an_archive_with_two_skills_asks_and_waits(space: Space) -> None:
    source = [
        UploadedFile("pack/one/SKILL.md", SKILL),
        UploadedFile("pack/two/SKILL.md", SKILL.replace(b"name: one", b"name: two")),
    ]
    with pytest.raises(RootChoiceNeeded):
        services.add_package(tenant=space.tenant, source=source, actor=ACTOR)
    version = services.add_package(tenant=space.tenant, source=source, actor=ACTOR, root="pack/two")
    assert version.skill.name == "two"


def test_two_tenants_keep_their_own_skills(space: Space) -> None:
    from tests.skills.world import make_space

    other = make_space("simulated", path="elsewhere")
    assert add_skill(space, "one") != add_skill(other, "one")


def test_an_archived_skill_comes_back_with_an_upload(space: Space) -> None:
    version = add_skill(space, "one")
    services.archive_skill(skill=version.skill, actor=ACTOR)
    assert Skill.objects.get().archived_at is not None
    add_skill(space, "one")
    assert Skill.objects.get().archived_at is None


def test_an_edited_plan_is_a_new_revision_and_an_unchanged_one_is_not(space: Space) -> None:
    version = add_skill(space, "one")
    plan = Plan((Step(StepKind.APT, ("tree",), "admin", "wanted"),))
    second = services.save_plan(version=version, plan=plan, actor=ACTOR)
    assert second.number == 2
    assert services.save_plan(version=version, plan=plan, actor=ACTOR) == second
    assert PlanRevision.objects.count() == 2
    assert version.current_plan == second


def test_an_upload_is_kept_for_its_tenant_until_it_is_forgotten(
    space: Space, tmp_path: Path
) -> None:
    source = tmp_path / "x.zip"
    source.write_bytes(b"content")
    with source.open("rb") as stream:
        stream.read()
        token = uploads.keep_upload(tenant_id=space.tenant_id, stream=stream)
    with uploads.open_upload(tenant_id=space.tenant_id, token=token) as kept:
        assert kept.read() == b"content"
    for tenant, wrong in (("tnt_other", token), (space.tenant_id, "../../etc/passwd")):
        with pytest.raises(InvalidRequest, match="choose the file again"):
            uploads.open_upload(tenant_id=tenant, token=wrong)
    uploads.forget_upload(tenant_id=space.tenant_id, token=token)
    uploads.forget_upload(tenant_id=space.tenant_id, token=token)
    with pytest.raises(InvalidRequest):
        uploads.open_upload(tenant_id=space.tenant_id, token=token)


def test_uploads_that_nobody_came_back_for_are_swept(space: Space, tmp_path: Path) -> None:
    from django.utils import timezone

    source = tmp_path / "x.zip"
    source.write_bytes(b"content")
    with source.open("rb") as stream:
        uploads.keep_upload(tenant_id=space.tenant_id, stream=stream)
    assert uploads.sweep_uploads() == 0
    assert uploads.sweep_uploads(now=timezone.now() + 2 * uploads.KEPT_FOR) == 1
