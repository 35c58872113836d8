"""Tests the callbacks in the real frameworks, if these are installed.

Each runs in a new interpreter, because the frameworks start threads and a process with threads must
not fork.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).parents[2] / "support" / "callbacks_in_frameworks.py"


@pytest.mark.parametrize(
    ("tests", "needed"),
    [
        ("keras", ["keras"]),
        ("hugging_face", ["torch", "transformers", "accelerate"]),
        ("lightning", ["lightning"]),
    ],
)
def test_a_framework_saves_stops_and_continues(tests: str, needed: list[str]) -> None:
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(PROGRAM), "-k", tests, "-q"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
