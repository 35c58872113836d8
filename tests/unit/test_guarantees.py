"""docs/guarantees.md names the tests that show each guarantee; every name must be that of a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "guarantees.md"


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = set(re.findall(r"`((?:unit|integration|e2e|fuzz|chaos)/[\w/]+\.py)::(\w+)`", DOCUMENT.read_text()))
    assert named
    missing = sorted(f"{file}::{name}" for file, name in named if name not in _tests_of(TESTS / file))
    assert missing == []


def test_every_promise_and_every_fault_names_a_test() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and "Shown by" not in line]
    numbers = [int(number) for row in rows for number in re.findall(r"^\| (\d+)\. ", row)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 10
    assert [row for row in rows if "::" not in row] == []


def _tests_of(file: Path) -> set[str]:
    """Return the names of the tests in a file; none when there is no such file."""
    if not file.exists():
        return set()
    found = ast.parse(file.read_text()).body
    return {each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
