"""Routes of the API. A view names the right that each of its methods needs."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path, register_converter

from console.api.backends import images, runs
from console.api.backends import views as backends
from console.api.catalog import views as catalog
from console.api.converters import TextConverter
from console.api.policies import views as policies
from console.api.reference import views as reference
from console.api.releases import builds
from console.api.releases import views as releases
from console.api.runtime import commands, files, sessions
from console.api.spaces import skills
from console.api.spaces import views as spaces
from console.api.tenancy import audit
from console.api.tenancy import views as tenancy
from console.api.views import Nowhere

register_converter(TextConverter, "text")

app_name = "api"

SESSION = "sessions/<text:session>"
space_routes: list[URLPattern | URLResolver] = [
    path("sessions", sessions.Sessions.as_view(), name="sessions"),
    path(f"{SESSION}", sessions.SessionDetail.as_view(), name="session"),
    path(f"{SESSION}/resolve", sessions.Resolve.as_view(), name="resolve"),
    path(f"{SESSION}/turns", sessions.Turns.as_view(), name="turns"),
    path(f"{SESSION}/pause", sessions.Pause.as_view(), name="pause"),
    path(f"{SESSION}/resume", sessions.Resume.as_view(), name="resume"),
    path(f"{SESSION}/rebuild", sessions.Rebuild.as_view(), name="rebuild-session"),
    path(f"{SESSION}/history", sessions.History.as_view(), name="session-history"),
    path(f"{SESSION}/exec", commands.Exec.as_view(), name="exec"),
    path(f"{SESSION}/skills/<str:name>/run", commands.RunScript.as_view(), name="run-script"),
    path(f"{SESSION}/files", files.Files.as_view(), name="files"),
    path(f"{SESSION}/files/list", files.Folder.as_view(), name="folder"),
    path(f"{SESSION}/files/stat", files.Stat.as_view(), name="stat"),
    path(f"{SESSION}/inputs", files.Inputs.as_view(), name="inputs"),
    path(f"{SESSION}/outputs", files.Outputs.as_view(), name="outputs"),
    path(f"{SESSION}/outputs/file", files.OutputFile.as_view(), name="output-file"),
    path(f"{SESSION}/outputs/archive", files.OutputArchive.as_view(), name="output-archive"),
]

space_routes += [
    path("capabilities", spaces.SpaceCapabilities.as_view(), name="capabilities"),
    path("skills", skills.SpaceSkills.as_view(), name="space-skills"),
    path("skills/<str:name>", skills.SpaceSkill.as_view(), name="space-skill"),
    path("skills/<str:name>/files", skills.SpaceSkillFiles.as_view(), name="space-skill-files"),
    path("skills/<str:name>/file", skills.SpaceSkillFile.as_view(), name="space-skill-file"),
    path("builds", builds.Builds.as_view(), name="builds"),
    path("builds/<str:build>", builds.BuildDetail.as_view(), name="build"),
    path("builds/<str:build>/cancel", builds.CancelBuild.as_view(), name="cancel-build"),
    path("builds/<str:build>/take-up", builds.TakeUpBuild.as_view(), name="take-up-build"),
    path("builds/<str:build>/retry", builds.RetryBuild.as_view(), name="retry-build"),
    path("builds/<str:build>/hints/<int:index>", builds.ApplyHint.as_view(), name="apply-hint"),
    path("builds/<str:build>/log", builds.BuildLog.as_view(), name="build-log"),
    path("releases", releases.Releases.as_view(), name="releases"),
    path("releases/<str:release>", releases.ReleaseDetail.as_view(), name="release"),
    path("releases/<str:release>/diff", releases.ReleaseDiff.as_view(), name="release-diff"),
    path("releases/<str:release>/roll-back", releases.RollBack.as_view(), name="roll-back"),
    path("releases/<str:release>/rollout", releases.ReleaseRollout.as_view(), name="roll-out"),
    path("rollout", releases.SpaceRollout.as_view(), name="rollout"),
    path("rollout/promote", releases.PromoteCandidate.as_view(), name="promote"),
    path("promotions", releases.Promotions.as_view(), name="promotions"),
    path("network-policy", policies.Policy.as_view(), name="policy"),
    path("network-policy/history", policies.PolicyHistory.as_view(), name="policy-history"),
    path("network-policy/test", policies.PolicyTest.as_view(), name="policy-test"),
    path("network-policy/apply", policies.PolicyApply.as_view(), name="policy-apply"),
]

BACKEND = "backends/<str:backend>"
VERSION = "skills/<str:skill>/versions/<int:number>"
tenant_routes: list[URLPattern | URLResolver] = [
    path("members", tenancy.Members.as_view(), name="members"),
    path("members/<int:member>", tenancy.MemberDetail.as_view(), name="member"),
    path("api-keys", tenancy.Keys.as_view(), name="keys"),
    path("api-keys/<str:key>", tenancy.KeyDetail.as_view(), name="key"),
    path("backends", backends.Backends.as_view(), name="backends"),
    path(BACKEND, backends.BackendDetail.as_view(), name="backend"),
    path(f"{BACKEND}/preview", backends.ChangePreview.as_view(), name="preview-backend"),
    path(f"{BACKEND}/credentials", backends.Credentials.as_view(), name="credentials"),
    path(f"{BACKEND}/former-accounts", backends.FormerAccounts.as_view(), name="former-accounts"),
    path(
        f"{BACKEND}/former-accounts/<str:former>",
        backends.FormerAccountDetail.as_view(),
        name="former-account",
    ),
    path(f"{BACKEND}/cordon", backends.Cordon.as_view(), name="cordon"),
    path(f"{BACKEND}/check", backends.BackendCheck.as_view(), name="check-backend"),
    path(f"{BACKEND}/inventory", backends.BackendInventory.as_view(), name="inventory"),
    path(f"{BACKEND}/images", images.Images.as_view(), name="images"),
    path(f"{BACKEND}/templates/<text:template>", images.TemplateDetail.as_view(), name="template"),
    path(f"{BACKEND}/reconciles", runs.Reconciles.as_view(), name="reconciles"),
    path(f"{BACKEND}/reconciles/<str:report>", runs.ReconcileDetail.as_view(), name="reconcile"),
    path(f"{BACKEND}/verifications", runs.Verifications.as_view(), name="verifications"),
    path(
        f"{BACKEND}/verifications/<str:report>",
        runs.VerificationDetail.as_view(),
        name="verification",
    ),
    path("skills", catalog.Skills.as_view(), name="skills"),
    path("skills/<str:skill>", catalog.SkillDetail.as_view(), name="skill"),
    path("skills/<str:skill>/versions", catalog.Versions.as_view(), name="versions"),
    path(VERSION, catalog.VersionDetail.as_view(), name="version"),
    path(f"{VERSION}/inspection", catalog.Inspection.as_view(), name="inspection"),
    path(f"{VERSION}/plan", catalog.PlanDetail.as_view(), name="plan"),
]

v1: list[URLPattern | URLResolver] = [
    path("spaces", spaces.Spaces.as_view(), name="spaces"),
    path("spaces/<str:space>", spaces.SpaceDetail.as_view(), name="space"),
    path("spaces/<str:space>/", include(space_routes)),
    path("me", tenancy.Me.as_view(), name="me"),
    path("audit", audit.Audit.as_view(), name="audit"),
    path("audit/export", audit.AuditExport.as_view(), name="audit-export"),
    path("audit/verify", audit.AuditVerify.as_view(), name="audit-verify"),
    path("tenants", tenancy.Tenants.as_view(), name="tenants"),
    path("tenants/<str:tenant>", tenancy.TenantDetail.as_view(), name="tenant"),
    path("tenants/<str:tenant>/", include(tenant_routes)),
]

urlpatterns = [
    path("v1/", include(v1)),
    path("schema/", reference.schema, name="schema"),
    path("docs/", reference.docs, name="docs"),
    re_path(r"^.*$", Nowhere.as_view(), name="nowhere"),
]
