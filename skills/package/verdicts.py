"""Three opinions on one SKILL.md, side by side: the specification, WeKnora, and this reader's own.

Strict is what the specification's reference validator (skills-ref) answers. WeKnora's rules are those of its
0.7 source, which differ from its prose: it counts bytes, reserves words and cannot read repaired YAML.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from skills_ref.errors import SkillError
from skills_ref.parser import parse_frontmatter
from skills_ref.validator import ALLOWED_FIELDS, validate_metadata

from skills.package.frontmatter import Head
from skills.package.types import Problem, Verdict, VerdictKind

__all__ = ["judge", "refused_verdicts"]

_STRICT_MAX_BYTES = 32 * 1024
"""The reference validator parses YAML in pure Python: past this it is not asked."""
_WEKNORA_NAME_BYTES = 64
_WEKNORA_DESCRIPTION_BYTES = 1_024
_WEKNORA_LINE_BYTES = 64 * 1024
_WEKNORA_RESERVED = ("anthropic", "claude")
_TAG = re.compile(r"<[^<>]+>")

# The reference validator answers in sentences only: what each begins with, our code, and the mend.
_STRICT_CODES = (
    ("Unexpected fields", "fields_unknown", "move them below “metadata”."),
    ("Field 'name' must be", "name_missing", "write a name."),
    ("Skill name cannot start or end", "name_hyphen_edge", "remove the outer hyphen."),
    ("Skill name cannot contain consecutive", "name_hyphen_double", "use single hyphens."),
    ("Directory name", "name_not_folder", "rename the folder or the skill."),
    ("Field 'description' must be", "description_missing", "write a description."),
    ("Description exceeds", "description_too_long", "shorten it."),
    ("Field 'compatibility' must be", "compatibility_not_string", "write it as text."),
    ("Compatibility exceeds", "compatibility_too_long", "shorten it."),
    ("Missing required field in frontmatter: name", "name_missing", "write a name."),
    ("Missing required field in frontmatter: description", "description_missing", "write one."),
    ("SKILL.md must start", "frontmatter_missing", "the first characters must be “---”."),
    ("SKILL.md frontmatter not properly closed", "frontmatter_unclosed", "add a line “---”."),
    ("Invalid YAML", "yaml_invalid", "use plain “field: value” lines with quoted text."),
    ("SKILL.md frontmatter must be", "frontmatter_not_mapping", "write “field: value” lines."),
)
_STRICT_NAME_CODES = (
    ("exceeds", "name_too_long", "shorten it."),
    ("must be lowercase", "name_not_lowercase", "write it in lower case."),
    ("contains invalid characters", "name_characters", "use letters, digits and hyphens."),
)


def judge(raw: bytes, head: Head, entry: str, folder_name: str) -> tuple[Verdict, ...]:
    """The three verdicts. `folder_name` is empty where the skill's folder has no name of its own."""
    return (
        Verdict(VerdictKind.STRICT, tuple(_strict(raw, head, entry, folder_name))),
        Verdict(VerdictKind.WEKNORA, tuple(_weknora(raw, head, entry))),
        Verdict(VerdictKind.LENIENT, tuple(_lenient(head, entry, folder_name))),
    )


def refused_verdicts(problems: tuple[Problem, ...]) -> tuple[Verdict, ...]:
    """The verdicts on a package that was refused outright: what is unsafe fails for everyone."""
    return tuple(Verdict(kind, problems) for kind in VerdictKind)


def _strict(raw: bytes, head: Head, entry: str, folder_name: str) -> list[Problem]:
    if len(head.yaml_text) > _STRICT_MAX_BYTES:
        return [
            Problem(
                "frontmatter_too_large",
                f"The frontmatter of “{entry}” is larger than {_STRICT_MAX_BYTES:,} bytes, too "
                "large for the reference validator: move text to the body.",
                entry,
            )
        ]
    folder = PurePosixPath(folder_name) if folder_name else None
    try:
        # Universal newlines, as the validator itself opens the file; a BOM stays, as it does there.
        text = raw.decode().replace("\r\n", "\n").replace("\r", "\n")
        metadata, _ = parse_frontmatter(text)
        sentences = validate_metadata(metadata, folder)
    except SkillError as error:
        sentences = [str(error)]
    except Exception:  # the validator lets through whatever its YAML library raises
        sentences = ["Invalid YAML in frontmatter"]
    return [_strict_problem(sentence, head, entry) for sentence in sentences]


def _strict_problem(sentence: str, head: Head, entry: str) -> Problem:
    table = _STRICT_NAME_CODES if sentence.startswith("Skill name '") else ()
    for part, code, mend in table:
        if part in sentence:
            return Problem(code, _ended(sentence, mend), entry, head.lines.get("name"))
    for start, code, mend in _STRICT_CODES:
        if sentence.startswith(start):
            line = head.lines.get(code.partition("_")[0])
            return Problem(code, _ended(sentence, mend), entry, line)
    return Problem("strict_other", sentence.split("\n")[0][:300], entry)


def _ended(sentence: str, mend: str) -> str:
    first = " ".join(sentence.split("\n")[0].split())[:300].rstrip(".:")
    return f"{first}: {mend}"


def _weknora(raw: bytes, head: Head, entry: str) -> list[Problem]:
    problems: list[Problem] = []

    def add(code: str, sentence: str, field: str = "") -> None:
        problems.append(Problem(code, sentence, entry, head.lines.get(field)))

    name, description = str(head.frontmatter["name"]), str(head.frontmatter["description"])
    if not entry.endswith("SKILL.md"):
        add("skill_md_name", f"WeKnora only finds “SKILL.md”: rename “{entry}”.")
    if head.had_bom:
        add(
            "bom", f"WeKnora finds no frontmatter behind a byte order mark: save “{entry}” without."
        )
    if head.repairs:
        first = head.repairs[0]
        add(
            "yaml_invalid", f"WeKnora can't read line {first.line}: write it as {first.after[:200]}"
        )
    if any(len(line) > _WEKNORA_LINE_BYTES for line in raw.split(b"\n")):
        add("line_too_long", f"WeKnora stops at a line over 64 KiB in “{entry}”: break it up.")
    if (size := len(name.encode())) > _WEKNORA_NAME_BYTES:
        add("name_too_long", f"The name has {size} bytes; WeKnora takes 64: shorten it.", "name")
    if not all(character.isalnum() or character == "-" for character in name):
        add(
            "name_characters",
            "WeKnora takes letters, digits and hyphens in a name: rename.",
            "name",
        )
    for word in _WEKNORA_RESERVED:
        if word in name.lower():
            add("name_reserved", f"WeKnora reserves “{word}” in names: rename the skill.", "name")
    if (size := len(description.encode())) > _WEKNORA_DESCRIPTION_BYTES:
        add(
            "description_too_long",
            f"The description has {size} bytes; WeKnora takes 1,024: shorten it.",
            "description",
        )
    for field, value in (("name", name), ("description", description)):
        if match := _TAG.search(value):
            add(
                f"{field}_tag",
                f"WeKnora refuses “{match[0][:40]}” in the {field}: leave out the angle brackets.",
                field,
            )
    return problems


def _lenient(head: Head, entry: str, folder_name: str) -> list[Problem]:
    """Warnings only: what can't be loaded at all was refused before this is asked."""
    problems: list[Problem] = []

    def warn(code: str, sentence: str, field: str) -> None:
        problems.append(Problem(code, sentence, entry, head.lines.get(field), warning=True))

    name, description = str(head.frontmatter["name"]), str(head.frontmatter["description"])
    if folder_name and folder_name != name:
        warn("name_not_folder", f"The folder is “{folder_name}” but the skill “{name}”.", "name")
    if len(name) > 64:
        warn("name_too_long", f"The name has {len(name)} characters: 64 are the rule.", "name")
    if len(description) > 1024:
        warn(
            "description_too_long",
            f"The description has {len(description)} characters: 1,024 are the rule.",
            "description",
        )
    for repair in head.repairs:
        sentence = f"Line {repair.line} was read as {repair.after[:200]}"
        problems.append(Problem("yaml_repaired", sentence, entry, repair.line, warning=True))
    for field in head.frontmatter:
        if field not in ALLOWED_FIELDS:
            warn("field_unknown", f"“{field[:80]}” is no field of the specification.", field)
    metadata = head.frontmatter.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        warn(
            "metadata_nested", "metadata should map text to text: it was kept as JSON.", "metadata"
        )
    return problems
