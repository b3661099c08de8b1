"""A backend's test module has a subclass of every class of the suite, and all names are exported."""

from __future__ import annotations

import ast
from pathlib import Path

from sandboxes import testing


def contracts_in(name: str) -> set[str]:
    tree = ast.parse((Path(__file__).parent / name).read_text())
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {base.attr for node in classes for base in node.bases if isinstance(base, ast.Attribute)}


def test_local_takes_them_all() -> None:
    every = {name for name in testing.__all__ if name.endswith("Contract")} - {"Contract"}
    assert contracts_in("test_local.py") | contracts_in("test_local_by_name.py") == every


def test_docker_takes_all_but_names() -> None:
    """Names are opened by the same proxy as with `local`."""
    assert contracts_in("test_docker.py") == contracts_in("test_local.py")


def test_cube_takes_all_but_names() -> None:
    """Its fake's engine is the one that `test_local_by_name.py` tries with names."""
    assert contracts_in("test_cube.py") == contracts_in("test_local.py")


def test_the_gateway_takes_all_but_names() -> None:
    """Behind it is what `test_local_by_name.py` tries with names."""
    assert contracts_in("test_e2b_through_gateway.py") == contracts_in("test_local.py")


def test_exported_names_exist() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
