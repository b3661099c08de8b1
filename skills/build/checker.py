"""Runs inside the sandbox as the session's user, under the skill's own interpreter: one skill's checks.

    python -I checker.py INPUT.json

Sent there as text: it imports only the standard library (Python 3.8 and later) and nothing of ours. No code
of the skill runs; declared distributions are imported, each in a process of its own. Prints one JSON object
{"environment": {...}, "checks": [{"code", "subject", "ok", "output", "data"}]}.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterator  # noqa: UP035 (Python 3.8)

Add = Callable[..., None]

IMPORT_S = 60
SKIPPED = {".venv", "node_modules", ".git", "__pycache__"}
OUTPUT = 2000


def main(path: str) -> None:
    with open(path, encoding="utf-8") as stream:
        wanted = json.load(stream)
    checks: list[dict[str, Any]] = []

    def add(code: str, subject: str, ok: bool, output: str = "", **data: Any) -> None:
        checks.append(
            {"code": code, "subject": subject, "ok": ok, "output": output[-OUTPUT:], "data": data}
        )

    root = wanted["path"]
    files(root, wanted["files"], add)
    closed(root, add)
    distributions(wanted["pip"], wanted["deep"], add)
    node_packages(root, wanted["npm"], add)
    if wanted["deep"]:
        scripts(root, wanted["files"], add)
        imports(root, wanted["files"], add)
    sys.stdout.write(json.dumps({"environment": environment(), "checks": checks}))


def files(root: str, names: list[str], add: Add) -> None:
    missing = [name for name in names if not os.path.isfile(os.path.join(root, name))]
    unreadable = [
        n for n in names if n not in missing and not os.access(os.path.join(root, n), os.R_OK)
    ]
    for name in missing:
        add("file_missing", name, False, "It was uploaded and is not there any more.")
    for name in unreadable:
        add("file_unreadable", name, False, "The session's user can't read it.")
    if not missing and not unreadable:
        add("files", str(len(names)), True)


def closed(root: str, add: Add) -> None:
    """Nothing in the skill can be changed, nothing added."""
    writable: list[str] = []
    for folder, folders, names in os.walk(root):
        for name in [".", *folders, *names]:
            path = os.path.normpath(os.path.join(folder, name))
            if not os.path.islink(path) and os.access(path, os.W_OK):
                writable.append(os.path.relpath(path, root))
    probe = os.path.join(root, ".skillyard-probe")
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        pass
    else:
        os.unlink(probe)
        writable.append(".")
    add("closed", str(len(writable)), not writable, "\n".join(sorted(set(writable))[:20]))


def distributions(names: list[str], deep: bool, add: Add) -> None:
    for name in names:
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            add("distribution", name, False, "It is not installed.", version=None)
            continue
        add("distribution", name, True, version=found.version)
        module = module_of(found, name) if deep else None
        if module:
            error = import_error(module)
            add("importable", name, not error, error, module=module)


def module_of(distribution: importlib.metadata.Distribution, name: str) -> str | None:
    """The module that the distribution is imported by, as its own records tell; None if it has none."""
    plain = re.sub(r"[-_.]+", "_", name).lower()
    modules: list[str] = []
    for file in distribution.files or ():
        first = file.parts[0]
        if len(file.parts) == 2 and file.parts[1] == "__init__.py":
            modules.append(first)
        elif len(file.parts) == 1 and first.endswith((".py", ".so")):
            modules.append(first.split(".")[0])
    modules = [m for m in dict.fromkeys(modules) if m.isidentifier() and not m.startswith("_")]
    for module in modules:
        if module.lower() == plain:
            return module
    return modules[0] if modules else None


def import_error(module: str) -> str:
    """The last words of a failed import; empty if it works."""
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-I", "-c", code, module],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=IMPORT_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"importing it took longer than {IMPORT_S} s"
    if done.returncode == 0:
        return ""
    text = done.stderr.decode("utf-8", "replace").strip()
    return text or f"the interpreter died (exit code {done.returncode})"


def node_packages(root: str, names: list[str], add: Add) -> None:
    for name in names:
        path = os.path.join(root, "node_modules", *name.split("/"), "package.json")
        try:
            with open(path, encoding="utf-8") as stream:
                version = json.load(stream).get("version")
        except (OSError, ValueError):
            add("node_package", name, False, "It is not in node_modules.", version=None)
        else:
            add("node_package", name, True, version=version)


def scripts(root: str, names: list[str], add: Add) -> None:
    broken = counted = 0
    for name in names:
        path = os.path.join(root, name)
        if any(part in SKIPPED for part in name.split("/")) or not os.path.isfile(path):
            continue
        error = script_error(path, name)
        if error is None:
            continue
        counted += 1
        if error:
            broken += 1
            add("script", name, False, error)
    if not broken:
        add("scripts", str(counted), True)


def script_error(path: str, name: str) -> str | None:
    """None for what is no script, empty for one that is well formed."""
    ending = os.path.splitext(name)[1].lower()
    with open(path, "rb") as stream:
        shebang = (
            stream.readline(200) if ending not in (".py", ".js", ".mjs", ".cjs", ".sh") else b""
        )
    if ending == ".py" or (shebang.startswith(b"#!") and b"python" in shebang):
        return python_error(path, name)
    if ending in (".js", ".mjs", ".cjs") or (shebang.startswith(b"#!") and b"node" in shebang):
        return program_error(["node", "--check", path])
    if ending == ".sh" or re.match(rb"#!.*\b(ba|da)?sh\b", shebang):
        return program_error(["bash", "-n", path])
    return None


def python_error(path: str, name: str) -> str:
    with open(path, "rb") as stream:
        source = stream.read()
    try:
        compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def program_error(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_S, check=False
        )
    except FileNotFoundError:
        return f"{argv[0]} is not installed, so it can't be checked or run"
    except subprocess.TimeoutExpired:
        return f"{' '.join(argv[:2])} took longer than {IMPORT_S} s"
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()


def imports(root: str, names: list[str], add: Add) -> None:
    """Modules that a script can't do without and that nothing provides."""
    local = {part for name in names for part in re.split(r"[/.]", name)}
    missing: dict[str, dict[str, Any]] = {}
    for name in names:
        if not name.endswith(".py") or any(part in SKIPPED for part in name.split("/")):
            continue
        for module, needed in imported(os.path.join(root, name)):
            if module in local or known(module):
                continue
            entry = missing.setdefault(module, {"files": [], "needed": False})
            entry["files"].append(name)
            entry["needed"] = entry["needed"] or needed
    for module, entry in sorted(missing.items()):
        add("import", module, False, "", **entry)


def imported(path: str) -> Iterator[tuple[str, bool]]:
    """(module, True if the script fails without it) for each top-level name that is imported."""
    try:
        with open(path, "rb") as stream:
            tree = ast.parse(stream.read())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        else:
            continue
        for name in names:
            yield name.split(".")[0], id(node) in top


def known(module: str) -> bool:
    if module in sys.builtin_module_names or module in getattr(sys, "stdlib_module_names", ()):
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def environment() -> dict[str, str]:
    """What PEP 508 markers ask for."""
    return {
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
    }


if __name__ == "__main__":
    main(sys.argv[1])
