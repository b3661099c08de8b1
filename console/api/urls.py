"""Routes of the API. A view names the right that each of its methods needs."""

from __future__ import annotations

from django.urls import include, path, re_path, register_converter

from console.api.converters import SessionIdConverter
from console.api.runtime import commands, files, sessions
from console.api.views import Nowhere

register_converter(SessionIdConverter, "session_id")

app_name = "api"

SESSION = "sessions/<session_id:session>"
space_routes = [
    path("sessions", sessions.Sessions.as_view(), name="sessions"),
    path(f"{SESSION}", sessions.SessionDetail.as_view(), name="session"),
    path(f"{SESSION}/resolve", sessions.Resolve.as_view(), name="resolve"),
    path(f"{SESSION}/turns", sessions.Turns.as_view(), name="turns"),
    path(f"{SESSION}/pause", sessions.Pause.as_view(), name="pause"),
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

v1 = [
    path("spaces/<str:space>/", include(space_routes)),
]

urlpatterns = [
    path("v1/", include(v1)),
    re_path(r"^.*$", Nowhere.as_view(), name="nowhere"),
]
