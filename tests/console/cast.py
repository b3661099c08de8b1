"""The people of the console's tests, and one of everything for them to act on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from django.core.files.base import ContentFile
from django.utils import timezone

from console.audit.services import SYSTEM
from console.fleet.models import Backend, FormerAccount, ReconcileReport, Session, Verification
from console.fleet.services import create_space
from console.tenants.models import ApiKey, Membership, Role, Space, Tenant, User
from skills.models import (
    Build,
    BuildState,
    PlanRevision,
    Release,
    ReleaseState,
    Skill,
    SkillVersion,
)

__all__ = ["ROLES", "World", "make_world"]

ROLES = tuple(Role.values)


@dataclass(frozen=True)
class World:
    """One tenant with one of everything; `people` by role, all but the admin with a role in the space
    only. `stranger` is the admin of another tenant that has the same."""

    tenant: Tenant
    space: Space
    backend: Backend
    skill: Skill
    version: SkillVersion
    build: Build
    release: Release
    session: Session
    key: ApiKey
    report: ReconcileReport
    verification: Verification
    people: dict[str, User]
    former: FormerAccount


def make_world(name: str) -> World:
    tenant = Tenant.objects.create(slug=name, name=name.title())
    backend = Backend.objects.create(
        tenant=tenant, name="Here", provider="local", settings={"socket": f"/nowhere/{name}.sock"}
    )
    space = create_space(tenant=tenant, name="Lab", slug="lab", backend=backend, actor=SYSTEM)
    skill = Skill.objects.create(tenant=tenant, name="demo")
    version = SkillVersion.objects.create(
        skill=skill,
        number=1,
        digest=hashlib.sha256(name.encode()).hexdigest(),
        description="Shows things.",
        archive=ContentFile(b"tar", name=f"{name}.tar"),
        size_bytes=3,
        file_count=1,
        inspection={"files": [], "findings": [], "verdicts": [], "notes": []},
    )
    PlanRevision.objects.create(
        version=version,
        number=1,
        content={"schema_version": 1, "steps": [], "unknown": [], "notes": []},
    )
    build = Build.objects.create(
        space=space, state=BuildState.FAILED, error="It broke.", finished_at=timezone.now()
    )
    release = Release.objects.create(
        space=space,
        generation=1,
        backend=backend,
        fingerprint=backend.fingerprint,
        state=ReleaseState.SUPERSEDED,
        planned_name=f"{name}-1",
        snapshot_id="snap-1",
    )
    session = Session.objects.create(
        space=space, session_id="talk-1", backend=backend, sandbox_id="box1"
    )
    key = ApiKey.objects.create(
        tenant=tenant, name="robot", prefix=f"sky_{name}", secret_sha256="0" * 64, scopes=["view"]
    )
    report = ReconcileReport.objects.create(backend=backend, dry_run=True, actor="system")
    verification = Verification.objects.create(
        backend=backend, template="base", fingerprint=backend.fingerprint, actor="system"
    )
    former = FormerAccount.objects.create(
        backend=backend, provider="local", settings={"socket": "/old.sock"}, fingerprint="0" * 64
    )
    people = {}
    for role in ROLES:
        user = User.objects.create_user(f"{role}-{name}")
        in_space = None if role == Role.ADMIN else space
        Membership.objects.create(user=user, tenant=tenant, space=in_space, role=role)
        people[role] = user
    return World(
        tenant,
        space,
        backend,
        skill,
        version,
        build,
        release,
        session,
        key,
        report,
        verification,
        people,
        former,
    )
