"""Programs and imports that a script uses, found by reading: nothing is imported and nothing runs.

Work is linear in the length of the input: patterns have no nested repetition and no overlapping alternatives,
and those that could begin anywhere are only tried where a literal marker stands.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from skills.package.texts import LineCounter, marked
from skills.plan.knowledge import APT_OF_PROGRAM, NPM_OF_PROGRAM

__all__ = [
    "Use",
    "node_imports",
    "node_programs",
    "python_code",
    "python_imports",
    "python_programs",
    "shell_programs",
]

MAX_SCRIPT_CHARACTERS = 2 * 1024 * 1024
_MAX_CALLS = 300
_MAX_CALL_CHARACTERS = 2_000
_KNOWN = APT_OF_PROGRAM.keys() | NPM_OF_PROGRAM.keys()
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

_PYTHON_TOKEN = re.compile(r"[#\"']")
_STRING_END = {'"': re.compile(r"(?:[^\"\\\n]|\\.)*\"?"), "'": re.compile(r"(?:[^'\\\n]|\\.)*'?")}
_IMPORT = re.compile(
    r"[ \t]*(?:import[ \t]+(?P<names>[^\n;(]{1,500})|from[ \t]+(?P<source>\w[\w.]*)[ \t]+import\b)"
)
_STARTERS = (
    "run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput", "system", "popen",
    "which", "execv", "execvp", "execl", "execlp", "spawnv", "spawnvp", "spawnlp", "run_command", "run_cmd",
    "create_subprocess_exec", "create_subprocess_shell",
)  # fmt: skip
_STARTING_HINTS = ("subprocess", "os.", "shutil.which", "run_c", "import run", "import which")
_CALL = re.compile(rf"(?:{'|'.join(sorted(_STARTERS, key=len, reverse=True))})\(")
_CALL_MODULE = re.compile(r"(?:^|[^\w.])(?P<module>(?:subprocess|sp|os|shutil|asyncio)\.)?$")
_LIST_HEAD = re.compile(r"\[\s{0,40}[\"'](?P<program>[A-Za-z0-9_.+-]{1,64})[\"']\s{0,40},")
_NODE_CALL = re.compile(
    r"(?<![\w])(?P<name>exec|execSync|execFile|execFileSync|spawn|spawnSync|execa)"
    r"\(\s{0,40}[\"'`](?P<command>[^\"'`\n]{1,300})"
)
_NODE_IMPORT = re.compile(
    r"(?:\bfrom[ \t]{0,8}|\bimport[ \t]{0,8}\(?[ \t]{0,8}|\brequire\([ \t]{0,8})[\"'](?P<name>[^\"'\n]{1,214})[\"']"
)
_SHELL_SPLIT = re.compile(r"\|\||&&|[;|&(){}`\n]|\$\(")
_SHELL_SKIP = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "do",
        "while",
        "until",
        "for",
        "!",
        "time",
        "exec",
        "command",
        "builtin",
        "env",
        "sudo",
        "nohup",
        "xargs",
        "case",
        "in",
        "esac",
        "fi",
        "done",
        "function",
        "select",
        "{",
        "}",
    ]
)
_BUILTINS = frozenset(
    [
        "cd",
        "export",
        "set",
        "source",
        ".",
        ":",
        "read",
        "local",
        "unset",
        "trap",
        "exit",
        "return",
        "shift",
        "eval",
    ]
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*\(\)", re.MULTILINE)
_ASKED_FOR = re.compile(
    r"\b(?:command[ \t]{1,8}-v|which|type[ \t]{1,8}-P|hash)[ \t]{1,8}([A-Za-z0-9_.+-]{1,64})"
)
_HEREDOC = re.compile(r"<<-?[ \t]{0,4}[\"']?([A-Za-z_]\w{0,63})")
_parsing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Use:
    name: str
    line: int
    optional: bool = False
    """The script only asks whether it is there."""


def python_imports(code: str) -> Iterator[Use]:
    """Top-level modules that a Python file imports absolutely, also inside of functions. Takes `python_code`."""
    lines = LineCounter(code)
    at, last_start = code.find("import"), -1
    while at >= 0:
        start = code.rfind("\n", 0, at) + 1
        match = _IMPORT.match(code, start) if start != last_start else None
        line = lines.at(at)
        last_start, at = start, code.find("import", at + len("import"))
        if match is None:
            continue
        if match["source"]:
            yield Use(match["source"].partition(".")[0], line)
            continue
        for name in match["names"].split(","):
            module = name.split(" as ")[0].strip().partition(".")[0]
            if module.isidentifier():
                yield Use(module, line)


def python_programs(code: str) -> Iterator[Use]:
    """Programs that a Python file starts: the calls are cut out and read one by one, so that one
    broken line does not hide the rest. Takes `python_code`."""
    if not any(hint in code for hint in _STARTING_HINTS):
        return
    lines = LineCounter(code)
    calls = marked(code, (f"{name}(" for name in _STARTERS), _CALL)
    for match in calls[:_MAX_CALLS]:
        before = _CALL_MODULE.search(code[max(0, match.start() - 16) : match.start()])
        call = _parsed_call(code, match.end()) if before else None
        if before is None or call is None:
            continue
        name = match[0][:-1]
        line = lines.at(match.start())
        for program in _programs_of(call, name):
            if program in _KNOWN or (before["module"] and program not in _BUILTINS):
                yield Use(program, line, optional=name == "which")
    if "subprocess" in code:
        lines = LineCounter(code)
        for match in marked(code, ("[",), _LIST_HEAD):
            if match["program"] in APT_OF_PROGRAM:
                yield Use(match["program"], lines.at(match.start()))


def shell_programs(text: str) -> Iterator[Use]:
    """Known programs at the head of a shell command, and any that `command -v` asks for."""
    functions = set(_FUNCTION.findall(text))
    for number, line in _shell_lines(text):
        for asked in _ASKED_FOR.findall(line):
            if asked not in functions:
                yield Use(asked, number, optional=True)
        for piece in _SHELL_SPLIT.split(line):
            head = _head_of(piece)
            if head in _KNOWN and head not in functions:
                yield Use(head, number)


def node_imports(text: str) -> Iterator[Use]:
    """Packages that a JavaScript or TypeScript file imports; relative and built-in ones left out."""
    lines = LineCounter(text)
    for match in marked(text, ("from", "import", "require("), _NODE_IMPORT):
        name = match["name"]
        if name.startswith((".", "/", "node:", "bun:", "http:", "https:", "#", "@/", "~")):
            continue
        parts = name.split("/")
        yield Use("/".join(parts[: 2 if name.startswith("@") else 1]), lines.at(match.start()))


def node_programs(text: str) -> Iterator[Use]:
    lines = LineCounter(text)
    for match in marked(text, ("exec", "spawn"), _NODE_CALL):
        head = _head_of(match["command"])
        if head in _KNOWN:
            yield Use(head, lines.at(match.start()))


def python_code(text: str) -> str:
    """The code with comments and long strings blanked; newlines stay, so lines keep their numbers."""
    kept: list[str] = []
    text = text[:MAX_SCRIPT_CHARACTERS]
    start = 0
    while match := _PYTHON_TOKEN.search(text, start):
        at = match.start()
        quote = match[0]
        if quote == "#":
            kept.append(text[start:at])
            end = text.find("\n", at)
            start = len(text) if end < 0 else end
        elif text.startswith(quote * 3, at):
            end = _long_string_end(text, quote * 3, at + 3)
            kept.append(text[start:at] + quote * 2 + "\n" * text.count("\n", at, end))
            start = end
        else:
            short = _STRING_END[quote].match(text, at + 1)
            end = short.end() if short else at + 1
            kept.append(text[start:end])
            start = end
    kept.append(text[start:])
    return "".join(kept)


def _long_string_end(text: str, quotes: str, at: int) -> int:
    while (end := text.find(quotes, at)) >= 0:
        slashes = end - len(text[max(at, end - 64) : end].rstrip("\\")) - max(at, end - 64)
        if slashes % 2 == 0:
            return end + 3
        at = end + 1
    return len(text)


def _parsed_call(code: str, start: int) -> ast.Call | None:
    """The call whose arguments begin at `start`, or None where it is no readable Python."""
    depth = 1
    for match in re.finditer(
        r"[()]|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'",
        code[start : start + _MAX_CALL_CHARACTERS],
    ):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            break
    else:
        return None
    return _parsed(f"_({code[start : start + match.end()]}")


def _parsed(source: str) -> ast.Call | None:
    # Warnings about odd escapes are the author's business; the lock, because filters are global.
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return tree.body if isinstance(tree.body, ast.Call) else None


def _programs_of(call: ast.Call, name: str) -> Iterator[str]:
    if not call.args:
        return
    first = call.args[0]
    if isinstance(first, ast.BinOp):
        first = first.left
    if isinstance(first, ast.List | ast.Tuple):
        head = _constant(first.elts[0]) if first.elts else ""
        yield from _named(head)
        return
    text = _constant(first)
    shell = name in ("system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell")
    if shell or any(keyword.arg == "shell" for keyword in call.keywords) or " " in text:
        for piece in _SHELL_SPLIT.split(text):
            yield from _named(_head_of(piece))
    else:
        yield from _named(text)


def _constant(node: ast.expr) -> str:
    """The text of a literal, or of an f-string up to its first hole."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values:
        return _constant(node.values[0])
    return ""


def _named(program: str) -> Iterator[str]:
    name = program.rpartition("/")[2]
    if _PROGRAM.fullmatch(name) and "{" not in program and not program.startswith("."):
        yield name


def _shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a shell script without comments and here-documents, continuations joined."""
    joined, start, until = "", 1, ""
    for number, line in enumerate(text[:MAX_SCRIPT_CHARACTERS].split("\n"), start=1):
        if until:
            until = "" if line.strip() == until else until
            continue
        start = start if joined else number
        if line.endswith("\\") and len(joined) < _MAX_CALL_CHARACTERS:
            joined += line[:-1] + " "
            continue
        whole, joined = joined + line, ""
        if whole.lstrip().startswith("#"):
            continue
        if heredoc := _HEREDOC.search(whole):
            until = heredoc[1]
        yield start, whole[:_MAX_CALL_CHARACTERS]


def _head_of(piece: str) -> str:
    """The program of one simple command: behind keywords, assignments and options of wrappers."""
    if _ASKED_FOR.search(piece):
        return ""
    wrapped = False
    for word in piece.split(maxsplit=12)[:12]:
        word = word.strip("\"'")
        if word in _SHELL_SKIP:
            wrapped = True
        elif not (_ASSIGNMENT.match(word) or (wrapped and word.startswith("-"))):
            return word.rpartition("/")[2]
    return ""
