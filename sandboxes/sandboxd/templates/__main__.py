"""`python -m sandboxes.sandboxd.templates ACTION`: the same as sandboxd's `template`."""

import argparse
import sys

from sandboxes.sandboxd.templates.commands import add_template_actions, run_template_action

parser = argparse.ArgumentParser(prog="template")
add_template_actions(parser)
sys.exit(run_template_action(parser.parse_args()))
