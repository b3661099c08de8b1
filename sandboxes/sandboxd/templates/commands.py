"""`template list|build|import|remove`, for `python -m sandboxes.sandboxd` and `manage.py` alike."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.templates.store import TemplateStore

__all__ = [
    "SYSTEM_DATA_DIR",
    "add_template_actions",
    "add_template_commands",
    "default_data_dir",
    "default_templates_dir",
    "run_template_action",
    "show_progress",
]


SYSTEM_DATA_DIR = Path("/var/lib/skillyard")


def default_data_dir() -> Path:
    """SKILLYARD_DATA_DIR, else the system's for root and the account's own for any other."""
    if chosen := os.environ.get("SKILLYARD_DATA_DIR"):
        return Path(chosen)
    if os.geteuid() == 0:
        return SYSTEM_DATA_DIR
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local/share")) / "skillyard"


def default_templates_dir() -> Path:
    """SKILLYARD_TEMPLATES_DIR, else `templates` in the data directory."""
    chosen = os.environ.get("SKILLYARD_TEMPLATES_DIR")
    return Path(chosen) if chosen else default_data_dir() / "templates"


def add_template_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `template`; `args.func(args)` then gives the exit code."""
    parser = subparsers.add_parser("template", help="list, build, import and remove base images")
    add_template_actions(parser)
    parser.set_defaults(func=run_template_action)


def add_template_actions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--templates-dir", type=Path, default=default_templates_dir(), metavar="DIR"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="show the templates of this host, newest first")
    building = actions.add_parser("build", help="build the base template, if it is not there yet")
    building.add_argument(
        "--json", action="store_true", help="progress as one JSON object a line, for programs"
    )
    building.add_argument(
        "--rebuild", action="store_true", help="a new version with today's packages, all the same"
    )
    importing = actions.add_parser("import", help="make a template from a root file system's tar")
    importing.add_argument("name", metavar="NAME")
    importing.add_argument("tar", type=Path, metavar="ROOTFS.TAR")
    removing = actions.add_parser("remove", help="remove a template by its id")
    removing.add_argument("id", metavar="ID")


def run_template_action(args: argparse.Namespace) -> int:
    """The exit code; errors are one sentence on stderr."""
    if args.action in ("import", "remove") and os.geteuid() != 0:
        return _run_inside(args)
    store = TemplateStore(args.templates_dir)
    console = Console()
    try:
        if args.action == "list":
            _print_list(store, console)
        elif args.action == "build":
            with _json_progress() if args.json else show_progress("base template") as progress:
                # Ended from outside, it ends what it started.
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
                store.build_base(progress, rebuild=args.rebuild)
        elif args.action == "import":
            with show_progress(f"template {args.name}") as progress:
                template = store.import_tar(args.name, args.tar, progress)
            console.print(template.id, highlight=False)
        else:
            template = store.get(args.id)
            store.remove(template.id)
            console.print(f"{template.id} is removed.", highlight=False)
    except SandboxError as error:
        if error.detail:
            sys.stderr.write(f"{error.detail}\n")
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def _run_inside(args: argparse.Namespace) -> int:
    """Without root: where this account is root over the ids that it may map."""
    # Imported here: it needs Linux.
    from sandboxes.sandboxd.engines.runc.rootless import holder

    command = [sys.executable, "-m", "sandboxes.sandboxd.templates"]
    command += [f"--templates-dir={args.templates_dir}", args.action]
    if args.action == "import":
        command += ["--", args.name, str(args.tar)]
    else:
        command += ["--", args.id]
    try:
        return holder.run_inside(args.templates_dir, command)
    except SandboxError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1


def _print_list(store: TemplateStore, console: Console) -> None:
    table = Table("id", "name", "MB", "made", box=None)
    for template in store.list():
        made = template.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(template.id, template.name, str(template.size_bytes // 1_000_000), made)
    if table.row_count:
        console.print(table)
    else:
        console.print(f"No templates in {store.root} yet: build the base with `template build`.")


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[str, float | None], None]]:
    """A bar on a terminal; elsewhere a line whenever the kind of step changes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_printer(title)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("starting", total=1.0, title=title)

        def update(text: str, fraction: float | None) -> None:
            bars.update(task, description=text, completed=fraction)

        yield update


@contextmanager
def _json_progress() -> Iterator[Callable[[str, float | None], None]]:
    def update(text: str, fraction: float | None) -> None:
        sys.stdout.write(json.dumps({"text": text, "fraction": fraction}) + "\n")
        sys.stdout.flush()

    yield update


def _line_printer(title: str) -> Callable[[str, float | None], None]:
    shown = ""

    def update(text: str, fraction: float | None) -> None:
        nonlocal shown
        kind = text.split(" ", 1)[0] if fraction is not None and fraction < 0.9 else text
        if kind != shown:
            sys.stderr.write(f"{title}: {text}\n")
            sys.stderr.flush()
        shown = kind

    return update
