"""Finds the Pythons of the frameworks, which the scripts in tools/ install."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@functools.cache
def installed_by(script: str) -> str:
    """Return the path that a script in tools/ has installed; skip the test if it has not run."""
    found = subprocess.run(
        [TOOLS / script, "--cached"], capture_output=True, text=True, check=False
    )
    if found.returncode == 77:
        pytest.skip(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()
