"""Packages: read a skill from the wild, judge it, refuse what is unsafe. Pure: no Django, nothing runs.

content.py      where the bytes lie while they are judged
sources.py      one interface over zips.py, tars.py, folders.py and uploads; opening.py tells which
names.py        which names are safe            roots.py        where in the source the skill is
frontmatter.py  the head of SKILL.md            verdicts.py     strict, WeKnora, lenient
safety.py       the report shown before a build tarstream.py    the package as one upload
reader.py       read_package, which puts them together
"""

from skills.package.errors import PackageRefused, RootChoiceNeeded
from skills.package.reader import read_package
from skills.package.sources import UploadedFile
from skills.package.tarstream import to_tar
from skills.package.types import (
    LIMITS,
    Finding,
    Limits,
    Note,
    Package,
    PackageFile,
    Problem,
    Repair,
    RootCandidate,
    Severity,
    Verdict,
    VerdictKind,
)
from skills.package.verdicts import refused_verdicts

__all__ = [
    "LIMITS",
    "Finding",
    "Limits",
    "Note",
    "Package",
    "PackageFile",
    "PackageRefused",
    "Problem",
    "Repair",
    "RootCandidate",
    "RootChoiceNeeded",
    "Severity",
    "UploadedFile",
    "Verdict",
    "VerdictKind",
    "read_package",
    "refused_verdicts",
    "to_tar",
]
