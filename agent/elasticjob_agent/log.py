"""Writes the agent's own lines into the log of the container, among those of the program."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"elasticjob-agent: {message}\n")
