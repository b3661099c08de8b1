"""A 5 MB package is judged at once. The figure itself is the benchmark's; this only catches a blow-up."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from skills.inspect import inspect
from tests.skills.package.builders import SKILL_MD, zipped


def mixed_package() -> dict[str, bytes]:
    """Fonts, data, prose and scripts, as large skills are made of."""
    dice = random.Random(5)  # noqa: S311 - content, not a secret
    words = [
        "the",
        "agent",
        "should",
        "install",
        "a",
        "key",
        "token",
        "with",
        "curl",
        "and",
        "pip",
        "for",
        "中文",
        "文档",
        "tools",
    ]
    prose = "\n".join(" ".join(dice.choices(words, k=14)) for _ in range(14_000))
    rows = (json.dumps({"id": n, "url": f"https://host{n % 40}.example/"}) for n in range(18_000))
    script = "import os, yaml\nimport subprocess\n\n\ndef main(path):\n    subprocess.run(['pdftotext', path])\n"
    return {
        "SKILL.md": SKILL_MD,
        **{f"assets/{n}.png": b"\x89PNG\0" + dice.randbytes(60_000) for n in range(40)},
        "references/guide.md": prose.encode(),
        "data/rows.jsonl": "\n".join(rows).encode(),
        **{f"scripts/part{n}.py": (script * 400).encode() for n in range(6)},
    }


def test_five_megabytes(tmp_path: Path) -> None:
    tree = mixed_package()
    assert 4_500_000 < sum(map(len, tree.values())) < 5_500_000
    archive = tmp_path / "big.zip"
    archive.write_bytes(zipped(tree))
    inspect(archive)
    begin = time.process_time()
    assert inspect(archive)["accepted"]
    assert time.process_time() - begin < 2
