"""What a sandbox needs to know of its host to install packages: certificates, mirrors, proxies.

Carried into a template when it is made. Credentials are never carried: an index or a proxy whose
URL holds a password is left out, and `HostSettings.notes` says so.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["CA_BUNDLE", "DebianSource", "HostSettings", "debian_sources", "read_host_settings"]

CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""Where Debian keeps all trusted certificates, on the host and in a template."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "timeout")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """`files` maps a path in the template (no leading slash) to its text; `env` is added to every
    process of a sandbox; `certificates` are those that Debian itself does not ship, as PEM;
    `apt_options` are lines for apt.conf; `build_env` holds proxies for the build alone."""

    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    apt_options: tuple[str, ...] = ()
    build_env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def digest(self) -> str:
        """Of all that ends up in a template; the same settings give the same hex digest."""
        parts = [dict(self.files), dict(self.env), list(self.certificates), list(self.apt_options)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianSource:
    """One line of apt's sources, for a suite of Debian."""

    uri: str
    suite: str
    keyring: str = _KEYRING

    def line(self) -> str:
        return f"deb [signed-by={self.keyring}] {self.uri} {self.suite} main"


def read_host_settings(environ: Mapping[str, str] | None = None) -> HostSettings:
    """Read this host's own settings. Reads files and runs `apt-config`; changes nothing."""
    environ = os.environ if environ is None else environ
    notes: list[str] = []
    pip = _pip_settings(environ, notes)
    npm = _npm_settings(environ, notes)
    proxies, build_proxies = _proxies(environ, notes)
    certificates = tuple(_foreign_certificates(environ))
    env = {
        "NODE_EXTRA_CA_CERTS": CA_BUNDLE,
        "PIP_CERT": CA_BUNDLE,
        "REQUESTS_CA_BUNDLE": CA_BUNDLE,
        "SSL_CERT_FILE": CA_BUNDLE,
        **proxies,
    }
    files = {
        "etc/environment": "".join(f"{k}={v}\n" for k, v in {"LANG": "C.UTF-8", **env}.items())
    }
    if pip:
        lines = "".join(f"{key} = {value}\n" for key, value in pip.items())
        files["etc/pip.conf"] = f"[global]\n{lines}"
    if "index-url" in pip:
        files["etc/uv/uv.toml"] = (
            f"[[index]]\nurl = {json.dumps(pip['index-url'])}\ndefault = true\n"
        )
    if npm:
        files["usr/local/etc/npmrc"] = "".join(f"{key}={value}\n" for key, value in npm.items())
    for number, pem in enumerate(certificates):
        files[f"usr/local/share/ca-certificates/host-{number:03}.crt"] = pem
    return HostSettings(
        files=files,
        env=env,
        certificates=certificates,
        apt_options=tuple(_apt_options(notes)),
        build_env=build_proxies,
        notes=tuple(notes),
    )


def debian_sources(suite: str) -> list[DebianSource]:
    """Where to get Debian's `suite`, its updates and its security fixes: from the mirrors that this
    host uses if it is a Debian, else from Debian's own."""
    mirror, security = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
    host_mirror = host_security = None
    for uri, host_suite in _host_sources():
        path = urlsplit(uri).path.rstrip("/")
        if path.endswith("debian-security") or host_suite.endswith("-security"):
            host_security = host_security or uri
        elif path.endswith("debian"):
            host_mirror = host_mirror or uri
    if host_mirror is not None:
        mirror = host_mirror
        security = host_security or host_mirror.rstrip("/") + "-security"
    return [
        DebianSource(uri=mirror, suite=suite),
        DebianSource(uri=mirror, suite=f"{suite}-updates"),
        DebianSource(uri=security, suite=f"{suite}-security"),
    ]


def _host_sources() -> Iterator[tuple[str, str]]:
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in files:
        if path.suffix == ".sources" and path.is_file():
            for stanza in re.split(r"\n\s*\n", path.read_text()):
                fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
                if fields.get("Enabled", "yes").lower() == "no":
                    continue
                for uri in fields.get("URIs", "").split():
                    for suite in fields.get("Suites", "").split():
                        yield uri, suite
        elif path.suffix == ".list" and path.is_file():
            for line in path.read_text().splitlines():
                found = re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", line)
                if found:
                    yield found[1], found[2]


def _pip_settings(environ: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    home = Path(environ.get("HOME", "/root"))
    config = configparser.RawConfigParser(strict=False)
    files = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", home / ".config/pip/pip.conf")
    for path in (*files, home / ".pip/pip.conf"):
        try:
            config.read(path)
        except configparser.Error as error:
            notes.append(f"{path} was not carried into the template: {error}")
    found = {k: config.get("global", k) for k in _PIP_KEYS if config.has_option("global", k)}
    for key in _PIP_KEYS:
        value = environ.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            found[key] = value
    kept: dict[str, str] = {}
    for key, value in found.items():
        usable = [word for word in value.split() if _may_carry(word, f"pip's {key}", notes)]
        if usable:
            kept[key] = "\n    ".join(usable)
    return kept


def _npm_settings(environ: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    home = Path(environ.get("HOME", "/root"))
    found: dict[str, str] = {}
    for path in (Path("/etc/npmrc"), Path("/usr/etc/npmrc"), home / ".npmrc"):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, equals, value = (part.strip() for part in line.partition("="))
            if equals and (key == "registry" or re.fullmatch(r"@[\w.-]+:registry", key)):
                found[key] = value
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if environ.get(name):
            found["registry"] = environ[name]
    return {k: v for k, v in found.items() if _may_carry(v, f"npm's {k}", notes)}


def _proxies(environ: Mapping[str, str], notes: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(those a template may hold, those the build itself uses)."""
    build: dict[str, str] = {}
    carried: dict[str, str] = {}
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        value = environ.get(name) or environ.get(name.upper())
        if not value:
            continue
        build[name] = value
        if name == "no_proxy" or _may_carry(value, name, notes):
            carried[name] = carried[name.upper()] = value
    if "http_proxy" not in carried and "https_proxy" not in carried:
        carried = {}
    return carried, build


def _may_carry(url: str, what: str, notes: list[str]) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "file":
        notes.append(f"{what} is a folder of this host ({url}): not carried into the template")
        return False
    if parts.username or parts.password:
        notes.append(
            f"{what} holds a password for {parts.hostname}: not carried into the template; "
            "name it in the skill's own build settings instead"
        )
        return False
    if parts.scheme and (parts.hostname or "") in ("localhost", "127.0.0.1", "::1"):
        notes.append(
            f"{what} is on this host's loopback, which sandboxes cannot reach: not carried"
        )
        return False
    return True


def _apt_options(notes: list[str]) -> Iterator[str]:
    try:
        dump = subprocess.run(
            ["apt-config", "dump"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for line in dump.splitlines():
        found = re.match(
            r'Acquire::(?:(?:https?)::(?:Proxy|Timeout)(?:::\S+)?|Check-Valid-Until|Check-Date) "(.*)";',
            line,
        )
        if found and found[1] and _may_carry(found[1], "apt's proxy", notes):
            yield line


def _foreign_certificates(environ: Mapping[str, str]) -> list[str]:
    """Those the host trusts and Debian's ca-certificates does not ship, in a stable order."""
    shipped: set[str] = set()
    for path in Path("/usr/share/ca-certificates").rglob("*.crt"):
        shipped.update(digest for digest, _ in _certificates([path]))
    bundles = {CA_BUNDLE, environ.get("SSL_CERT_FILE"), environ.get("NODE_EXTRA_CA_CERTS")}
    bundles |= {environ.get("REQUESTS_CA_BUNDLE"), environ.get("PIP_CERT")}
    found = dict(_certificates(Path(bundle) for bundle in bundles if bundle))
    return [found[digest] for digest in sorted(found.keys() - shipped)]


def _certificates(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for body in _PEM.findall(text):
            packed = "".join(body.split())
            try:
                der = base64.b64decode(packed, validate=True)
            except ValueError:
                continue
            lines = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
            pem = f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
            yield hashlib.sha256(der).hexdigest(), pem
