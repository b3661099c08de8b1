"""What a space's skills tell an agent, level by level: names, instructions, files.

Only what the release carries that a session gets: what is merely in the catalog would not be found in
the sandbox.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from rest_framework import serializers

from console.api.schema import OCTETS, Media, operation, parameter
from console.api.views import SpaceView, answer
from console.tenants.access import Action
from sandboxes.errors import InvalidRequest
from skills.models import ReleaseSkill
from skills.rollout import release_for_session
from skills.services import open_package

TAG = "skills"
SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".sh")
SESSION = parameter(
    "session", description="As this session would get them: a candidate release is for some only."
)


class SkillSummarySerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    version = serializers.IntegerField()
    label = serializers.CharField(  # type: ignore[assignment]
        help_text="The package's own version, if it states one."
    )
    path = serializers.CharField(help_text="Its folder in a sandbox.")


class PackageFileSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    size_bytes = serializers.IntegerField()
    executable = serializers.BooleanField()
    sha256 = serializers.CharField()


class SkillInstructionsSerializer(SkillSummarySerializer):
    instructions = serializers.CharField(help_text="The body of SKILL.md.")
    scripts = serializers.ListField(
        child=serializers.CharField(), help_text="What `skills/{name}/run` takes as `script`."
    )


class ReleasedView(SpaceView):
    def items(self, request: HttpRequest) -> list[ReleaseSkill]:
        session = request.GET.get("session")
        release = self.space.current_release
        if session is not None:
            release = release_for_session(self.space, session)
        if release is None:
            return []
        return list(release.items.select_related("version__skill"))

    def item(self, request: HttpRequest, name: str) -> ReleaseSkill:
        found = [row for row in self.items(request) if row.version.skill.name == name]
        if not found:
            raise Http404
        return found[0]


def summary(item: ReleaseSkill) -> dict[str, Any]:
    version = item.version
    return {
        "name": version.skill.name,
        "description": version.description,
        "version": version.number,
        "label": version.label,
        "path": version.skill.path,
    }


class SpaceSkills(ReleasedView):
    needs = {"GET": Action.VIEW}

    @operation(
        "space_skills_list",
        "Level 1: the name and description of every skill",
        tag=TAG,
        response=SkillSummarySerializer,
        listed=True,
        parameters=[SESSION],
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer([summary(item) for item in self.items(request)])


class SpaceSkill(ReleasedView):
    needs = {"GET": Action.VIEW}

    @operation(
        "space_skills_get",
        "Level 2: the instructions of one skill",
        tag=TAG,
        response=SkillInstructionsSerializer,
        parameters=[SESSION],
    )
    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        item = self.item(request, name)
        with open_package(item.version) as package:
            body, files = package.body, package.files
        scripts = [file.path for file in files if file.path.endswith(SCRIPTS)]
        return answer({**summary(item), "instructions": body, "scripts": scripts})


class SpaceSkillFiles(ReleasedView):
    needs = {"GET": Action.VIEW}

    @operation(
        "space_skills_files",
        "Level 3: the files of one skill",
        tag=TAG,
        response=PackageFileSerializer,
        listed=True,
        parameters=[SESSION],
    )
    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        return answer(self.item(request, name).version.inspection.get("files", []))


class SpaceSkillFile(ReleasedView):
    needs = {"GET": Action.VIEW}

    @operation(
        "space_skills_file",
        "Level 3: one file of one skill",
        tag=TAG,
        response=Media(OCTETS),
        parameters=[parameter("path", required=True), SESSION],
    )
    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        path = request.GET.get("path", "")
        if not path:
            raise InvalidRequest("Say which file: ?path=… as its list names it.")
        item = self.item(request, name)
        with open_package(item.version) as package:
            try:
                content = package.read(path)
            except KeyError:
                raise Http404 from None
        response = HttpResponse(content, content_type=OCTETS)
        response.headers["Content-Disposition"] = content_disposition_header(
            True, path.rpartition("/")[2]
        )
        return response
