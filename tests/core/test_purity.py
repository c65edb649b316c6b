"""The import contracts name what the core must not use; this names the little that it may."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cotenant.core

ALLOWED = {
    "__future__",
    "array",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "numpy",
    "re",
    "typing",
    "zlib",
}
FORBIDDEN_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
FILES = sorted(Path(cotenant.core.__path__[0]).glob("**/*.py"))


def imports_of(tree: ast.AST) -> set[str]:
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


def test_the_files_are_found() -> None:
    assert {"units.py", "ledger.py", "line.py", "placement.py"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_module_of_the_core_imports_only_what_is_pure(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for name in imports_of(tree):
        assert name.split(".")[0] in ALLOWED or name.startswith("cotenant.core."), name
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not called & FORBIDDEN_BUILTINS
