"""Checks that tests share code only through tests/support and the conftests."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
SHARED = ("tests.support", "tests.conftest")


def test_no_file_of_tests_imports_from_another_test_file() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {module}"
        for path in sorted(TESTS.rglob("*.py"))
        for module in _imported(path)
        if module.split(".")[0] == "tests" and module != "tests" and not module.startswith(SHARED)
    ]
    assert found == []


def test_every_shared_file_has_a_docstring() -> None:
    files = [*(TESTS / "support").rglob("*.py"), *TESTS.rglob("conftest.py")]
    silent = [
        str(path.relative_to(TESTS))
        for path in files
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def _imported(path: Path) -> list[str]:
    """Return the modules that a file imports, by their full names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return names + [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
