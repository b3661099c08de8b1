"""`python -m sandboxes.sandboxd serve|template ...`"""

from __future__ import annotations

import argparse
import sys

from sandboxes.sandboxd.serve import add_serve_command
from sandboxes.sandboxd.templates.commands import add_template_commands


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandboxes.sandboxd", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_serve_command(commands)
    add_template_commands(commands)
    args = parser.parse_args(argv)
    return int(args.func(args))


if __name__ == "__main__":
    sys.exit(main())
