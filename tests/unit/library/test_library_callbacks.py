"""Tests the callbacks in the real frameworks, if these are installed.

Each runs in a new interpreter, because the frameworks start threads and a process with threads must
not fork.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.framework_python import LIBRARY, ROOT, installed_by

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).parents[2] / "support" / "callbacks_in_frameworks.py"


@pytest.mark.guarantee("one-world")
@pytest.mark.parametrize("tests", ["hugging_face", "lightning", "moments"])
def test_a_library_of_pytorch_saves_stops_and_continues(tests: str) -> None:
    check(installed_by("callbacks_env"), tests, "--noconftest", "-c/dev/null")


def test_keras_saves_stops_and_continues() -> None:
    if find_spec("keras") is None:
        pytest.skip("not installed: keras")
    check(sys.executable, "keras")


def check(python: str, tests: str, *options: str) -> None:
    run = subprocess.run(
        [python, "-m", "pytest", str(PROGRAM), "-k", tests, "-q", *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": f"{LIBRARY}:{ROOT}"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
