"""Bodies of the session runtime."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from rest_framework import serializers

from console.api.schema import ErrorSerializer, event_stream
from console.fleet.models import SessionState
from console.fleet.workspace import WORKSPACE
from sandboxes.sessions import Outcome
from sandboxes.types import DEFAULT_USER, FileType

__all__ = [
    "COMMAND_EVENTS",
    "CommandResultSerializer",
    "CommandSerializer",
    "FileEntrySerializer",
    "HistoryEventSerializer",
    "MakeDirSerializer",
    "OutputsSerializer",
    "RebuiltSerializer",
    "ResolveSerializer",
    "ResolvedSerializer",
    "RunScriptSerializer",
    "SessionSerializer",
    "StagedSerializer",
    "TurnSerializer",
]

MAX_TIMEOUT_S = 24 * 3600
DEFAULT_TIMEOUT_S = 60.0
_NAME = r"\A[A-Za-z_][A-Za-z0-9_]*\Z"


def plain(value: str) -> None:
    if "\0" in value:
        raise serializers.ValidationError("A NUL character can't be passed to a command.")


class Text(serializers.CharField):
    """Text as it is: neither trimmed nor refused for being blank."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"allow_blank": True, "trim_whitespace": False, "validators": [plain], **options}
        )

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class InputSerializer(serializers.Serializer[Any]):
    """What a command and a script have in common."""

    stdin = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Standard input as text."
    )
    stdin_base64 = serializers.CharField(
        required=False, help_text="Standard input as bytes, in base64."
    )
    env = serializers.DictField(child=Text(), required=False, default=dict)
    cwd = Text(required=False, default=WORKSPACE)
    timeout_s = serializers.FloatField(
        required=False,
        default=DEFAULT_TIMEOUT_S,
        min_value=0.001,
        max_value=MAX_TIMEOUT_S,
        help_text="Then the whole process tree is killed and the result says `killed`.",
    )
    user = serializers.RegexField(
        r"\A[a-z_][a-z0-9_-]{0,31}\Z",
        required=False,
        default=DEFAULT_USER,
        help_text="Another account than `user` needs the right `operate`.",
    )
    max_output_bytes = serializers.IntegerField(
        required=False,
        default=1024 * 1024,
        min_value=0,
        max_value=16 * 1024 * 1024,
        help_text="Of each stream, in a JSON answer; the rest is dropped and `truncated` is true.",
    )

    def validate_env(self, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise serializers.ValidationError(f"“{name}” is no name of a variable.")
        return value

    def validate_stdin_base64(self, value: str) -> bytes:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise serializers.ValidationError("This is no base64.") from None

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "stdin" in attrs and "stdin_base64" in attrs:
            raise serializers.ValidationError("Send stdin or stdin_base64, not both.")
        raw = attrs.pop("stdin_base64", None)
        text = attrs.pop("stdin", None)
        attrs["stdin"] = text.encode() if text is not None else raw
        return attrs


class CommandSerializer(InputSerializer):
    """A command line for a login shell, or an argument vector that is executed as it is."""

    command = Text(required=False, allow_blank=False, help_text="Run by a login shell.")
    argv = serializers.ListField(
        child=Text(), required=False, min_length=1, help_text="Executed without a shell."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("command" in attrs) == ("argv" in attrs):
            raise serializers.ValidationError("Send either command or argv.")
        if "argv" in attrs and not attrs["argv"][0]:
            raise serializers.ValidationError({"argv": ["The command's name is empty."]})
        return super().validate(attrs)


class RunScriptSerializer(InputSerializer):
    script = Text(allow_blank=False, help_text="Its path in the skill's folder.")
    args = serializers.ListField(child=Text(), required=False, default=list)


class CommandResultSerializer(serializers.Serializer[Any]):
    sandbox_id = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])
    stdout = serializers.CharField(help_text="As text; bytes that are no UTF-8 are replaced.")
    stderr = serializers.CharField()
    stdout_base64 = serializers.CharField(
        allow_null=True, help_text="The bytes, only where they are no UTF-8."
    )
    stderr_base64 = serializers.CharField(allow_null=True)
    exit_code = serializers.IntegerField(help_text="128+n for a death by signal n.")
    killed = serializers.BooleanField(help_text="It overran timeout_s.")
    duration_s = serializers.FloatField()
    truncated = serializers.BooleanField()


class StartedSerializer(serializers.Serializer[Any]):
    pid = serializers.IntegerField()
    sandbox_id = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])


class OutputSerializer(serializers.Serializer[Any]):
    data = serializers.CharField(help_text="The bytes, in base64.")  # type: ignore[assignment]
    text = serializers.CharField(
        allow_null=True,
        allow_blank=True,
        help_text=(
            "The same as text, with a character that two events share in the second; null once the stream is "
            "no UTF-8."
        ),
    )


class ExitSerializer(serializers.Serializer[Any]):
    exit_code = serializers.IntegerField(help_text="128+n for a death by signal n.")
    killed = serializers.BooleanField(help_text="It overran timeout_s.")
    duration_s = serializers.FloatField()


COMMAND_EVENTS = event_stream(
    "Command",
    {
        "start": StartedSerializer,
        "stdout": OutputSerializer,
        "stderr": OutputSerializer,
        "exit": ExitSerializer,
        "error": ErrorSerializer,
    },
)


class ResolveSerializer(serializers.Serializer[Any]):
    wait_s = serializers.FloatField(
        required=False,
        default=30.0,
        min_value=0,
        max_value=300,
        help_text="How long to queue behind other calls of this session; then 409.",
    )


class ResolvedSerializer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    sandbox_id = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])
    resumed = serializers.BooleanField(help_text="It was paused and has been woken.")
    stale = serializers.BooleanField(help_text="A newer release or policy waits for its next turn.")
    fell_back = serializers.BooleanField(
        help_text="It stands on the base template, for the release lies in another account."
    )
    release_id = serializers.CharField(allow_null=True)
    template_id = serializers.CharField()
    policy_revision = serializers.CharField()
    backend_id = serializers.CharField()


class TurnSerializer(serializers.Serializer[Any]):
    active = serializers.BooleanField()
    refs = serializers.IntegerField(help_text="Turns that are open.")
    may_rebuild = serializers.BooleanField(help_text="A stale sandbox may be replaced now.")


class SessionSerializer(serializers.Serializer[Any]):
    """The row that people see, and what the session store says now."""

    session_id = serializers.CharField()
    state = serializers.ChoiceField(choices=SessionState.choices)
    bound = serializers.BooleanField(help_text="It has a sandbox.")
    sandbox_id = serializers.CharField(allow_null=True)
    release_id = serializers.CharField(allow_null=True)
    policy_revision = serializers.CharField(allow_null=True)
    backend_id = serializers.CharField()
    stale = serializers.BooleanField()
    stale_reason = serializers.CharField(allow_null=True)
    turn = TurnSerializer()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    used_at = serializers.DateTimeField()
    destroyed_at = serializers.DateTimeField(allow_null=True)


class SessionRowSerializer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    state = serializers.ChoiceField(choices=SessionState.choices)
    sandbox_id = serializers.CharField(allow_blank=True)
    release_id = serializers.CharField(allow_null=True)
    backend_id = serializers.CharField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    used_at = serializers.DateTimeField()
    destroyed_at = serializers.DateTimeField(allow_null=True)


class DestroyedSerializer(serializers.Serializer[Any]):
    destroyed = serializers.BooleanField(help_text="False: there was nothing to destroy.")


class RebuiltSerializer(serializers.Serializer[Any]):
    rebuilt = serializers.BooleanField(help_text="False: it is done at the next turn.")


class HistoryEventSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    reason = serializers.CharField()
    actor = serializers.CharField()
    sandbox_id = serializers.CharField()
    created_at = serializers.DateTimeField()


class FileEntrySerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    path = serializers.CharField()
    type = serializers.ChoiceField(choices=[kind.value for kind in FileType])
    size_bytes = serializers.IntegerField()
    mode = serializers.CharField(help_text="Octal, such as 0644.")
    owner = serializers.CharField()
    modified_at = serializers.DateTimeField()
    link_target = serializers.CharField(allow_null=True)


class OutputsSerializer(serializers.Serializer[Any]):
    entries = FileEntrySerializer(many=True)
    total_bytes = serializers.IntegerField()


class StagedSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    size_bytes = serializers.IntegerField()


class MakeDirSerializer(serializers.Serializer[Any]):
    path = Text(allow_blank=False)
