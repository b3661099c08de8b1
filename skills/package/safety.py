"""The report that is shown before anything runs: what a package brings and where it points.

It is a reading aid, not a verdict: it refuses nothing. Of the 3,984 skills that one survey looked at, 13 % had a
critical flaw; a person decides, and should not have to open every file to do so.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skills.package.content import ContentStore
from skills.package.hidden_text import hidden_runs
from skills.package.install_commands import install_commands, pipes_to_shell
from skills.package.secret_strings import mask_secrets, secret_strings
from skills.package.texts import interpreter_of, line_at, read_text, spelled_out
from skills.package.types import Finding, PackageFile, Severity

__all__ = ["safety_report"]

MAX_FINDINGS = 2_000
_MAX_PER_FILE = 500
_IN_URL = r"[^\s\"'<>()\[\]{}|\\^`\x00-\x1f\u3000-\u303f\uff00-\uffef]"
_URL = re.compile(rf"https?://(?:\[[0-9A-Fa-f:.]{{2,45}}\]{_IN_URL}{{0,2000}}|{_IN_URL}{{1,2000}})")
_NATIVE = {
    b"\x7fELF": "Linux",
    b"MZ": "Windows",
    b"\xcf\xfa\xed\xfe": "macOS",
    b"\xce\xfa\xed\xfe": "macOS",
    b"\xca\xfe\xba\xbe": "macOS or Java",
}
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".jar", ".whl", ".vsix")
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "[::1]"})  # noqa: S104 - only named
_NAMESPACE_HOSTS = ("schemas.", "www.w3.org", "purl.org", "www.apache.org", "ns.adobe.com")
"""Names of XML vocabularies and licences: nobody fetches them, though they read like addresses."""
_ORDER = {Severity.DANGER: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class _Hit:
    """A finding before its line is counted and its excerpt cut."""

    severity: Severity
    code: str
    sentence: str
    position: int | None = None


def safety_report(files: Iterable[PackageFile], content: ContentStore) -> tuple[Finding, ...]:
    """Everything worth a look, the most serious first, then by path and line.

    Past a readable number the least serious are counted instead of listed.
    """
    found: list[Finding] = []
    left_out = 0
    for file in files:
        text = read_text(content, file.path)
        if text is None:
            head = content.read(file.path, 8)
            found.extend(_placed(file.path, "", _binary_hits(file, head)))
            continue
        hits = sorted(_text_hits(file, text), key=lambda hit: _ORDER[hit.severity])
        left_out += max(0, len(hits) - _MAX_PER_FILE)
        found.extend(_placed(file.path, text, hits[:_MAX_PER_FILE]))
    found.sort(key=lambda finding: (_ORDER[finding.severity], finding.path, finding.line or 0))
    left_out += max(0, len(found) - MAX_FINDINGS)
    found = found[:MAX_FINDINGS]
    if left_out:
        sentence = f"{left_out:,} further findings are not listed: look at the package itself."
        found.insert(0, Finding(Severity.WARNING, "findings_cut", sentence, ""))
    return tuple(found)


def _binary_hits(file: PackageFile, head: bytes) -> Iterator[_Hit]:
    for magic, system in _NATIVE.items():
        if head.startswith(magic):
            sentence = f"A compiled program for {system}: its source can't be read here."
            yield _Hit(Severity.WARNING, "native_program", sentence)
            return
    if file.path.lower().endswith(_ARCHIVES):
        sentence = "An archive inside of the package: its content was not looked at."
        yield _Hit(Severity.WARNING, "nested_archive", sentence)
    elif file.executable:
        yield _Hit(Severity.WARNING, "executable_data", "A binary file that is marked executable.")


def _text_hits(file: PackageFile, text: str) -> Iterator[_Hit]:
    if interpreter := interpreter_of(file.path, text):
        yield _Hit(Severity.INFO, "script", f"A script, run by {spelled_out(interpreter)}.", 0)
    elif file.executable:
        yield _Hit(
            Severity.WARNING, "executable_data", "An executable file without a “#!” line.", 0
        )
    for run in hidden_runs(text):
        yield _Hit(run.severity, run.code, run.sentence, run.position)
    for secret in secret_strings(text):
        sentence = f"This looks like {secret.kind}: {secret.masked}. Remove and revoke it."
        yield _Hit(Severity.DANGER, "secret", sentence, secret.start)
    for position in pipes_to_shell(text):
        sentence = "A download is handed to a shell without a look at it."
        yield _Hit(Severity.DANGER, "pipe_to_shell", sentence, position)
    for command in install_commands(text):
        sentence = f"An install command ({command.manager}): it is not run; the plan decides."
        yield _Hit(Severity.WARNING, "install_command", sentence, command.position)
    yield from _url_hits(text)


def _url_hits(text: str) -> Iterator[_Hit]:
    seen: set[str] = set()
    for match in _URL.finditer(text):
        url = match[0].rstrip(".,;:!?*_")
        if url in seen:
            continue
        seen.add(url)
        if len(seen) > 4 * _MAX_PER_FILE:
            return
        severity, code, sentence = _judged_url(url)
        yield _Hit(severity, code, sentence, match.start())


def _judged_url(url: str) -> tuple[Severity, str, str]:
    shown = spelled_out(mask_secrets(url)[:150])
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition("?")[0]
    name = host.partition(":")[0] if not host.startswith("[") else host
    if name in _LOCAL_HOSTS:
        return Severity.INFO, "url", f"Points at the sandbox itself: {shown}"
    if _is_address(name):
        return Severity.WARNING, "url_address", f"Points at a bare network address: {shown}"
    if url.startswith("http://") and not name.startswith(_NAMESPACE_HOSTS):
        return Severity.WARNING, "url_plain", f"Points at an unencrypted address: {shown}"
    return Severity.INFO, "url", f"Points at {shown}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _placed(path: str, text: str, hits: Iterable[_Hit]) -> Iterator[Finding]:
    """Count lines once from the top, however many hits there are."""
    line, counted, line_start = 1, 0, 0
    for hit in sorted(hits, key=lambda hit: hit.position or 0):
        if hit.position is None:
            yield Finding(hit.severity, hit.code, hit.sentence, path)
            continue
        line += text.count("\n", counted, hit.position)
        newest = text.rfind("\n", counted, hit.position)
        line_start = newest + 1 if newest >= 0 else line_start
        counted = hit.position
        piece, inside = line_at(text, hit.position)
        yield Finding(
            hit.severity,
            hit.code,
            hit.sentence,
            path,
            line,
            hit.position - line_start + 1,
            spelled_out(mask_secrets(piece), inside),
        )
