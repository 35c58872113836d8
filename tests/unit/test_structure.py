"""Checks how tests share code, and forms of code that ruff has no rule for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.mutations import master, operator

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
BUILT = ("build", "dist")
SHARED = ("tests.support", "tests.conftest")
_IMPORT = re.compile(r"^\s*(?:from|import) +(tests\.[\w.]+)", re.MULTILINE)


def test_no_file_of_tests_imports_from_another_test_file() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {module}"
        for path in sorted(TESTS.rglob("*.py"))
        for module in _imported(path)
        if not module.startswith(SHARED)
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


def test_every_mutation_finds_the_code_that_it_breaks() -> None:
    wrong = [
        mutation.name
        for mutation in (*master.MUTATIONS, *operator.MUTATIONS)
        if (ROOT / mutation.path).read_text().count(mutation.old) != 1
    ]
    assert wrong == [], "update them in tests/support/mutations"


def test_no_assignment_packs_several_values() -> None:
    packed = [
        f"{path.relative_to(ROOT)}:{line}: give each name an assignment of its own"
        for path in _python_files()
        for line in _packed_assignments(path.read_text())
    ]
    assert packed == [], "\n".join(packed)


def test_packed_assignments_are_found_by_their_lines() -> None:
    source = "a, b = f()\na, b = 1, 2\nif a:\n    c = (x.y, z) = b, a\nfor d, e in f: g = 1, 2\n"
    assert _packed_assignments(source) == [2, 4]


def _python_files() -> list[Path]:
    """Return the project's Python files, except those that protoc generates."""
    folders = [folder for folder in ROOT.iterdir() if folder.name not in BUILT and folder.is_dir()]
    return sorted(
        path
        for folder in folders
        if not folder.name.startswith(".")
        for path in folder.rglob("*.py")
        if "_pb2" not in path.name
    )


def _packed_assignments(source: str) -> list[int]:
    """Return the lines of the assignments with a tuple on both sides, such as `a, b = 1, 2`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    ]


def _imported(path: Path) -> list[str]:
    """Return the modules of the tests that a file imports, by their full names."""
    return _IMPORT.findall(path.read_text())
