"""Imports, programs and shebangs of scripts, found without running anything."""

from __future__ import annotations

import time

import pytest

from skills.plan import StepKind
from skills.plan.programs import python_code
from tests.skills.plan.test_manifests_are_read import on, plan_of, suggested

IMPORTS = {
    "import yaml": "PyYAML",
    "from PIL import Image": "pillow",
    "import cv2": "opencv-python-headless",
    "import fitz": "PyMuPDF",
    "from bs4 import BeautifulSoup": "beautifulsoup4",
    "import docx": "python-docx",
    "from pptx.util import Inches": "python-pptx",
    "import sklearn.linear_model as lm": "scikit-learn",
    "from dateutil import parser": "python-dateutil",
    "from dotenv import load_dotenv": "python-dotenv",
    "import requests": "requests",
    "try:\n    import numpy as np\nexcept ImportError:\n    pass": "numpy",
    "def f():\n    import pandas": "pandas",
}


@pytest.mark.parametrize("source", IMPORTS)
def test_imports_are_mapped_to_distributions(source: str) -> None:
    plan = plan_of({"scripts/a.py": source + "\n"})
    assert on(plan, StepKind.PIP) == [IMPORTS[source]]
    line = source.split("\n").index(next(s for s in source.split("\n") if "import" in s)) + 1
    assert plan.steps[0].source == f"scripts/a.py:{line}"
    assert "imports" in plan.steps[0].reason


def test_what_is_no_dependency() -> None:
    plan = plan_of(
        {
            "scripts/a.py": "import os, sys, json\nfrom . import x\nfrom .y import z\nimport helper\n"
            "from lib.deep import thing\nimport __future__\n# import six\ns = 'import rich'\n"
            "\"\"\"\nimport attrs\n\"\"\"\nx = '''\nimport click\n'''\n",
            "scripts/helper.py": "",
            "lib/deep/__init__.py": "",
        }
    )
    assert plan.steps == ()


def test_imports_are_suggestions_where_a_manifest_declares() -> None:
    plan = plan_of({"requirements.txt": "pyyaml>=6\n", "a.py": "import yaml, requests\n"})
    assert on(plan, StepKind.PIP) == ["pyyaml>=6"]
    assert suggested(plan, StepKind.PIP) == ["requests"], "yaml is covered by the manifest"


def test_a_guess_is_never_on() -> None:
    plan = plan_of({"a.py": "import some_unheard_of_thing\n"})
    assert suggested(plan, StepKind.PIP) == ["some-unheard-of-thing"]
    assert "guess" in plan.steps[0].reason


def test_imports_of_tests_and_examples_are_suggestions() -> None:
    plan = plan_of({"tests/test_a.py": "import pytest\n", "examples/b.py": "import numpy\n"})
    assert on(plan, StepKind.PIP) == []
    assert set(suggested(plan, StepKind.PIP)) == {"pytest", "numpy"}


PROGRAMS = {
    "import subprocess\nsubprocess.run(['pdftotext', 'a.pdf', '-'])": "poppler-utils",
    "import subprocess\nsubprocess.check_output(\n    ['ffmpeg', '-i', x],\n    text=True)": "ffmpeg",
    "import subprocess as sp\nsp.run(('tesseract', f))": "tesseract-ocr",
    "from subprocess import run\nrun(['soffice', '--headless'])": "libreoffice",
    "import subprocess\ncmd = ['magick', src, dst]\nsubprocess.run(cmd)": "imagemagick",
    "import os\nos.system('cd /x && convert a b')": "imagemagick",
    "import os\nos.system(f'jq . {path}')": "jq",
    "import subprocess\nsubprocess.run('pandoc ' + name, shell=True)": "pandoc",
    "import subprocess\nsubprocess.run(['/usr/bin/qpdf', '--check'])": "qpdf",
    "import asyncio\nasyncio.create_subprocess_exec('gs', '-q')": "ghostscript",
    "def run_cmd(c): ...\nrun_cmd('exiftool x')": "libimage-exiftool-perl",
    "import subprocess\nsubprocess.run(['gh', 'pr', 'view'] + extra)": "gh",
}


@pytest.mark.parametrize("source", PROGRAMS)
def test_programs_that_python_starts(source: str) -> None:
    plan = plan_of({"a.py": source + "\n"})
    assert on(plan, StepKind.APT) == [PROGRAMS[source]]
    assert len(plan.items(StepKind.CHECK)) == 1
    assert plan.items(StepKind.CHECK)[0].startswith("command -v ")


def test_programs_that_only_may_be_there_are_suggestions() -> None:
    plan = plan_of({"a.py": "import shutil\nshutil.which('jq')\n", "b.sh": "command -v gh\n"})
    assert on(plan, StepKind.APT) == []
    assert suggested(plan, StepKind.APT) == ["jq", "gh"]


def test_an_unknown_program_is_a_check_that_is_off() -> None:
    plan = plan_of({"a.py": "import subprocess\nsubprocess.run(['frobnicate', 'x'])\n"})
    assert [(s.kind, s.items, s.enabled) for s in plan.steps] == [
        (StepKind.CHECK, ("command -v frobnicate",), False)
    ]


def test_what_is_no_program() -> None:
    plan = plan_of(
        {
            "a.py": "import subprocess, sys\nsubprocess.run([sys.executable, 'x'])\n"
            "subprocess.run(['python3', 'x'])\nsubprocess.run(['ls'])\n# subprocess.run(['gs'])\n"
            "subprocess.run([program])\nsubprocess.run(['./local'])\nrun('hello there')\n"
        }
    )
    assert plan.steps == ()


SHELL = {
    "ffmpeg -i a b": ["ffmpeg"],
    "cat a | jq .x > b": ["jq"],
    "if ! pdftoppm a; then exit 1; fi": ["poppler-utils"],
    "X=1 sudo tesseract a b": ["tesseract-ocr"],
    "out=$(soffice --convert-to pdf a)": ["libreoffice"],
    "cd x && \\\n  pandoc a": ["pandoc"],
    "cat <<EOF\nffmpeg here\nEOF\ngs -q": ["ghostscript"],
    "# ffmpeg -i\necho ffmpeg": [],
    "convert() { echo; }\nconvert a": [],
    "ls; rm -f x; python3 a.py; node b.js": [],
}


@pytest.mark.parametrize("source", SHELL)
def test_programs_of_shell_scripts(source: str) -> None:
    plan = plan_of({"a.sh": "#!/bin/bash\n" + source + "\n"})
    assert on(plan, StepKind.APT) == SHELL[source]


@pytest.mark.parametrize(
    ("line", "kind", "item"),
    [
        ("#!/usr/bin/env ruby", StepKind.APT, "ruby"),
        ("#!/usr/bin/Rscript --vanilla", StepKind.APT, "r-base-core"),
        ("#!/usr/bin/env -S php -q", StepKind.APT, "php-cli"),
        ("#!/bin/zsh", StepKind.APT, "zsh"),
    ],
)
def test_shebangs(line: str, kind: StepKind, item: str) -> None:
    assert on(plan_of({"bin/tool": line + "\n"}), kind) == [item]


def test_bun_is_suggested_from_npm() -> None:
    plan = plan_of({"tool": "#!/usr/bin/env bun\nimport x from './x'\n", "bun.lock": ""})
    assert suggested(plan, StepKind.NPM) == ["bun"]


def test_node_imports_and_programs() -> None:
    source = (
        "import fs from 'fs'\nimport x from './x.js'\nimport {a} from \"lodash/fp\"\n"
        "const s = require('@scope/pkg/sub'); const p = require('node:path')\n"
        "const {execSync} = require('child_process'); execSync('ffmpeg -i x')\n"
        "await import('sharp')\n"
    )
    plan = plan_of({"a.mjs": source})
    assert on(plan, StepKind.NPM) == ["lodash", "@scope/pkg", "sharp"]
    assert on(plan, StepKind.APT) == ["ffmpeg"]
    declared = plan_of({"a.mjs": source, "package.json": '{"dependencies": {"lodash": "4"}}'})
    assert on(declared, StepKind.NPM) == ["lodash@4"]
    assert suggested(declared, StepKind.NPM) == ["@scope/pkg", "sharp"]


def test_what_a_distribution_needs_beside_itself() -> None:
    plan = plan_of({"requirements.txt": "pdf2image\npytesseract>=0.3\nplaywright\n"})
    assert on(plan, StepKind.APT) == ["poppler-utils", "tesseract-ocr"]
    assert suggested(plan, StepKind.COMMAND) == ["playwright install --with-deps chromium"]


def test_an_apt_list_makes_programs_suggestions() -> None:
    plan = plan_of({"apt.txt": "jq\n", "a.sh": "ffmpeg\njq\n"})
    assert on(plan, StepKind.APT) == ["jq"]
    assert suggested(plan, StepKind.APT) == ["ffmpeg"]


HOSTILE = {
    "unclosed string": "import os\nx = '''" + "a" * 100_000,
    "only quotes": "'\"" * 100_000,
    "backslashes": '"""' + "\\" * 200_001,
    "triple quotes": '"""\\' * 50_000,
    "deep call": "subprocess.run(" * 5_000,
    "deep list": "import subprocess\nsubprocess.run(" + "[" * 900 + "]" * 900 + ")",
    "unary": "import subprocess\nsubprocess.run(" + "-" * 1_900 + "1)",
    "attributes": "import subprocess\nsubprocess.run(x" + ".a" * 900 + ")",
    "imports": "import " * 100_000,
    "import list": "import " + "a," * 100_000,
    "blanks": "from " + " " * 100_000 + "import x",
    "nul": "import os\0\nimport rich",
    "no Python": "<?php import { } ?>" * 1_000,
    "surrogates": "import \ud800",
    "brackets": "subprocess['" * 30_000,
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("ending", ["py", "sh", "js"])
def test_hostile_scripts_are_read_quickly(case: str, ending: str) -> None:
    text = HOSTILE[case].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    begin = time.process_time()
    plan_of({f"a.{ending}": text})
    assert time.process_time() - begin < 5


def test_comments_and_long_strings_keep_line_numbers() -> None:
    source = "a = 1 # x\n'''\nb\n'''\nc = \"it's # no comment\"\nd = '\"\"\"'\ne\n"
    code = python_code(source)
    assert code.count("\n") == source.count("\n")
    assert code.split("\n")[4] == 'c = "it\'s # no comment"'
    assert code.split("\n")[6] == "e"
