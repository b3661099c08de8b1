"""What is carried from the host into a template, and what never is."""

from __future__ import annotations

from pathlib import Path

from sandboxes.sandboxd.templates.base import RECIPE
from sandboxes.sandboxd.templates.host import debian_sources, read_host_settings


def test_indexes_and_registries_are_carried_but_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://pypi.example/simple\n"
        "extra-index-url = https://me:hunter2@private.example/simple\n"
        "find-links = /srv/wheels\n"
    )
    (tmp_path / ".npmrc").write_text(
        "registry=https://npm.example/\n//npm.example/:_authToken=hunter2\n@acme:registry=https://a.example/\n"
    )

    settings = read_host_settings({"HOME": str(tmp_path)})

    assert "index-url = https://pypi.example/simple" in settings.files["etc/pip.conf"]
    assert '"https://pypi.example/simple"' in settings.files["etc/uv/uv.toml"]
    assert settings.files["usr/local/etc/npmrc"].splitlines() == [
        "registry=https://npm.example/",
        "@acme:registry=https://a.example/",
    ]
    everything = repr(settings.files) + repr(settings.env) + repr(settings.notes)
    assert "hunter2" not in everything
    assert "/srv/wheels" not in everything
    assert any("holds a password for private.example" in note for note in settings.notes)


def test_folders_of_the_host_are_no_index_for_a_sandbox(tmp_path: Path) -> None:
    settings = read_host_settings({"HOME": str(tmp_path), "PIP_INDEX_URL": "file:///opt/wheels"})
    assert "etc/uv/uv.toml" not in settings.files
    assert any("folder of this host" in note for note in settings.notes)


def test_a_proxy_with_a_password_serves_the_build_alone(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "HTTPS_PROXY": "http://me:hunter2@proxy.example:3128"}
    settings = read_host_settings(environ)
    assert settings.build_env == {"https_proxy": "http://me:hunter2@proxy.example:3128"}
    assert "https_proxy" not in settings.env
    assert any("proxy.example" in note for note in settings.notes)
    assert "hunter2" not in repr(settings.notes)


def test_an_open_proxy_is_carried(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "http_proxy": "http://proxy.example:3128"}
    settings = read_host_settings(environ)
    assert settings.env["http_proxy"] == settings.env["HTTP_PROXY"] == environ["http_proxy"]


def test_changed_settings_make_another_template(tmp_path: Path) -> None:
    plain = read_host_settings({"HOME": str(tmp_path)})
    same = read_host_settings({"HOME": str(tmp_path)})
    other = read_host_settings({"HOME": str(tmp_path), "PIP_INDEX_URL": "https://pypi.example/s"})
    assert RECIPE.template_id(plain) == RECIPE.template_id(same)
    assert RECIPE.template_id(plain) != RECIPE.template_id(other)


def test_debian_is_fetched_with_updates_and_security() -> None:
    sources = debian_sources("bookworm")
    assert [s.suite for s in sources] == ["bookworm", "bookworm-updates", "bookworm-security"]
    assert all(s.uri.startswith(("http://", "https://")) for s in sources)
    assert sources[2].uri != sources[0].uri
