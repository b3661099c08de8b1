"""The skill catalog of a tenant: upload, versions, what was found, the plan."""

from __future__ import annotations

from typing import IO, Any, BinaryIO, cast

import django_filters
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import serializers

from console.api.errors import ApiError
from console.api.incoming import parse_json
from console.api.multipart import Form, parse_form
from console.api.pages import filtered, page_of
from console.api.schema import operation
from console.api.views import MAX_JSON_BYTES, MemberView, answer
from console.tenants.access import Action
from skills.models import PlanRevision, Skill, SkillVersion
from skills.package import LIMITS, UploadedFile
from skills.package.opening import PackageSource
from skills.plan import validate_plan
from skills.services import add_package, archive_skill, save_plan

TAG = "catalog"


class VersionSerializer(serializers.ModelSerializer[SkillVersion]):
    skill_id = serializers.CharField()
    name = serializers.CharField(source="skill.name")
    plan_number = serializers.IntegerField(source="current_plan.number")

    class Meta:
        model = SkillVersion
        fields = (
            "id",
            "skill_id",
            "name",
            "number",
            "label",
            "digest",
            "description",
            "size_bytes",
            "file_count",
            "plan_number",
            "created_at",
        )


class SkillSerializer(serializers.ModelSerializer[Skill]):
    latest_version = VersionSerializer(allow_null=True)

    class Meta:
        model = Skill
        fields = ("id", "name", "created_at", "archived_at", "latest_version")


class InspectionSerializer(serializers.Serializer[Any]):
    """What reading the package found; nothing of it was run."""

    files = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    notes = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    findings = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    verdicts = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))


class PlanSerializer(serializers.ModelSerializer[PlanRevision]):
    plan = serializers.DictField(source="content", child=serializers.JSONField())

    class Meta:
        model = PlanRevision
        fields = ("number", "plan", "created_at")


class NewPlanSerializer(serializers.Serializer[Any]):
    plan = serializers.DictField(
        child=serializers.JSONField(), help_text="Whole, as `plan` of the answer has it."
    )


class PastedSerializer(serializers.Serializer[Any]):
    skill_md = serializers.CharField(trim_whitespace=False, help_text="A whole SKILL.md.")


UPLOAD = {
    "multipart/form-data": {
        "type": "object",
        "properties": {
            "archive": {
                "type": "string",
                "format": "binary",
                "description": "A .zip or .tar.gz with a SKILL.md. Either this or `files`.",
            },
            "files": {
                "type": "array",
                "items": {"type": "string", "format": "binary"},
                "description": "A folder, file by file.",
            },
            "paths": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The path of each of `files`, in the same order.",
            },
            "root": {
                "type": "string",
                "description": "Which folder is meant, if there are several skills.",
            },
        },
    },
    "application/json": PastedSerializer,
}


class SkillFilter(django_filters.FilterSet):
    name = django_filters.CharFilter()
    archived = django_filters.BooleanFilter(
        field_name="archived_at", lookup_expr="isnull", exclude=True
    )

    class Meta:
        model = Skill
        fields: tuple[str, ...] = ()


class CatalogView(MemberView):
    def skill(self, pk: str) -> Skill:
        row = Skill.objects.filter(tenant=self.tenant, pk=pk).first()
        if row is None:
            raise Http404
        return row

    def version(self, skill: str, number: int) -> SkillVersion:
        rows = SkillVersion.objects.filter(skill=self.skill(skill), number=number)
        row = rows.select_related("skill").first() if number < 2**31 else None
        if row is None:
            raise Http404
        return row


class Skills(CatalogView):
    needs = {"GET": Action.VIEW, "POST": Action.CATALOG}
    streams = frozenset({"post"})
    creates = True
    max_body_bytes = LIMITS.max_archive_bytes + 1024 * 1024

    @operation(
        "skills_list",
        "The skills of a tenant's catalog",
        tag=TAG,
        response=SkillSerializer,
        many=True,
        filters=SkillFilter,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = Skill.objects.filter(tenant=self.tenant).prefetch_related("versions")
        return page_of(request, filtered(SkillFilter, request, rows), SkillSerializer)

    @operation(
        "skills_upload",
        "Hand in a skill: an archive, a folder, or a pasted SKILL.md",
        tag=TAG,
        request=UPLOAD,
        response=VersionSerializer,
        status=201,
        idempotent=True,
        description=(
            "Read and judged, never run. The same content is the version that exists. A refusal "
            "(422) names every problem; if there are several skills, `details.candidates` has them."
        ),
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media == "application/json":
            version = self._pasted()
        else:
            form = parse_form(request, self.spooled)
            try:
                version = self._add(_source(form), str(form.fields.get("root", "")))
            finally:
                form.close()
        return answer(VersionSerializer(version).data, status=201)

    def _pasted(self) -> SkillVersion:
        body = self.spooled.read(MAX_JSON_BYTES + 1)
        if len(body) > MAX_JSON_BYTES:
            raise ApiError("too_large", "A pasted SKILL.md is smaller than that; send an archive.")
        self.data = parse_json(body)
        return self._add(self.valid(PastedSerializer)["skill_md"].replace("\r\n", "\n"), "")

    def _add(self, source: PackageSource, root: str) -> SkillVersion:
        return add_package(tenant=self.tenant, source=source, actor=self.actor, root=root or None)


def _source(form: Form) -> PackageSource:
    archive = form.files.get("archive")
    files: list[Any] = form.files.getlist("files")
    if (archive is None) == (not files):
        raise ApiError("validation", "Send either `archive`, or `files` with their `paths`.")
    if archive is not None:
        return cast(BinaryIO, archive.file)
    paths = form.fields.getlist("paths")
    if len(paths) != len(files):
        raise ApiError("validation", "Send as many `paths` as `files`, in the same order.")
    return [
        UploadedFile(path, cast("IO[bytes]", file.file))  # type: ignore[arg-type]
        for path, file in zip(paths, files, strict=True)
    ]


class SkillDetail(CatalogView):
    needs = {"GET": Action.VIEW, "DELETE": Action.CATALOG}

    @operation("skills_get", "One skill", tag=TAG, response=SkillSerializer)
    def get(self, request: HttpRequest, skill: str) -> HttpResponse:
        return answer(SkillSerializer(self.skill(skill)).data)

    @operation(
        "skills_archive",
        "Take a skill out of the catalog",
        tag=TAG,
        response=SkillSerializer,
        description="Idempotent. Releases keep it; an upload of the same name brings it back.",
    )
    def delete(self, request: HttpRequest, skill: str) -> HttpResponse:
        row = archive_skill(skill=self.skill(skill), actor=self.actor)
        return answer(SkillSerializer(row).data)


class Versions(CatalogView):
    needs = {"GET": Action.VIEW}

    @operation(
        "versions_list",
        "The versions of a skill, newest first",
        tag=TAG,
        response=VersionSerializer,
        many=True,
    )
    def get(self, request: HttpRequest, skill: str) -> HttpResponse:
        rows = SkillVersion.objects.filter(skill=self.skill(skill)).select_related("skill")
        return page_of(request, rows, VersionSerializer)


class VersionDetail(CatalogView):
    needs = {"GET": Action.VIEW}

    @operation("versions_get", "One version", tag=TAG, response=VersionSerializer)
    def get(self, request: HttpRequest, skill: str, number: int) -> HttpResponse:
        return answer(VersionSerializer(self.version(skill, number)).data)


class Inspection(CatalogView):
    needs = {"GET": Action.VIEW}

    @operation(
        "versions_inspection",
        "What reading the package found",
        tag=TAG,
        response=InspectionSerializer,
    )
    def get(self, request: HttpRequest, skill: str, number: int) -> HttpResponse:
        found = self.version(skill, number).inspection
        return answer(
            {key: found.get(key, []) for key in ("files", "notes", "findings", "verdicts")}
        )


class PlanDetail(CatalogView):
    needs = {"GET": Action.VIEW, "PUT": Action.CATALOG}

    @operation("plans_get", "What a build will install for it", tag=TAG, response=PlanSerializer)
    def get(self, request: HttpRequest, skill: str, number: int) -> HttpResponse:
        return answer(PlanSerializer(self.version(skill, number).current_plan).data)

    @operation(
        "plans_save",
        "Save an edited plan",
        tag=TAG,
        request=NewPlanSerializer,
        response=PlanSerializer,
        description="Appends a revision; an unchanged plan is the present one.",
    )
    def put(self, request: HttpRequest, skill: str, number: int) -> HttpResponse:
        plan = validate_plan(self.valid(NewPlanSerializer)["plan"])
        saved = save_plan(version=self.version(skill, number), plan=plan, actor=self.actor)
        return answer(PlanSerializer(saved).data)
