"""Finds the Pythons of the frameworks, which the scripts in tools/ install."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


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


def checkout(*folders: str) -> str:
    """Return a PYTHONPATH with these folders of the checkout, for a Python with packages only."""
    return ":".join(str(ROOT / folder) for folder in folders)


LIBRARY = checkout("library", "api", "shards")
"""The PYTHONPATH with which a program can import `elasticjob`."""
