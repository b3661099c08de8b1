"""A backend's templates: `manage.py images BACKEND [build|rebuild|status|delete TEMPLATE]`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand, CommandError

from console.audit.services import SYSTEM
from console.fleet.images import (
    NeededTemplate,
    delete_template,
    ensure_template,
    list_images,
    template_status,
)
from console.fleet.lookup import backend_called
from console.fleet.models import Backend
from sandboxes.errors import SandboxError
from sandboxes.types import TemplateBuild, TemplateStatus

_LOOK_EVERY_S = 1.0


class Command(BaseCommand):
    help = "List a backend's templates and snapshots; build, rebuild or delete a template."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("backend", help="its id or name")
        parser.add_argument(
            "action",
            nargs="?",
            default="list",
            choices=["list", "build", "rebuild", "status", "delete"],
        )
        parser.add_argument("template", nargs="?", default="", help="its name; to delete, its id")
        parser.add_argument("--no-wait", action="store_true", help="don't wait for the build's end")

    def handle(self, **options: Any) -> None:
        backend, action, name = (
            backend_called(options["backend"]),
            options["action"],
            options["template"],
        )
        if action != "list" and not name:
            raise CommandError(
                f"Name the template: manage.py images {backend.name} {action} TEMPLATE"
            )
        try:
            if action == "list":
                self._list(backend)
            elif action == "delete":
                async_to_sync(delete_template)(backend=backend, template_id=name, actor=SYSTEM)
                self.stdout.write(f"{name} is deleted.")
            elif action == "status":
                self._tell(async_to_sync(template_status)(backend=backend, name=name))
            else:
                build = async_to_sync(ensure_template)(
                    backend=backend, name=name, actor=SYSTEM, rebuild=action == "rebuild"
                )
                self._tell(build if options["no_wait"] else self._wait(backend, build))
        except SandboxError as error:
            raise CommandError(error.message) from error

    def _list(self, backend: Backend) -> None:
        images = async_to_sync(list_images)(backend)
        for needed in images.needed:
            self.stdout.write(f"needed    {needed.name}: {_how(needed)}")
        for template in images.templates:
            names = ", ".join(template.info.names)
            self.stdout.write(f"template  {template.info.id} ({names}) {template.info.status}")
        for snapshot, release in images.snapshots:
            whose = f"{release.space.slug} {release.generation}" if release else "none of ours"
            self.stdout.write(f"snapshot  {snapshot.id} ({', '.join(snapshot.names)}): {whose}")

    def _wait(self, backend: Backend, build: TemplateBuild) -> TemplateBuild:
        said = ""
        while build.status is TemplateStatus.BUILDING:
            if build.step != said:
                far = "" if build.fraction is None else f"{build.fraction:.0%} "
                self.stdout.write(f"{build.name}: {far}{build.step}")
                said = build.step
            time.sleep(_LOOK_EVERY_S)
            build = async_to_sync(template_status)(backend=backend, name=build.name)
        return build

    def _tell(self, build: TemplateBuild) -> None:
        if build.status is TemplateStatus.FAILED:
            raise CommandError(build.error)
        if build.status is TemplateStatus.READY:
            self.stdout.write(f"{build.name} is there: {build.template_id}")
        else:
            self.stdout.write(f"{build.name} is being built: {build.step}")


def _how(needed: NeededTemplate) -> str:
    if needed.problem:
        return needed.problem
    return needed.build.status.value if needed.build is not None else "not told here"
