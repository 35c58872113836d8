"""Writes the agent's own lines into the log of the container, among those of the program."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Coroutine

_LONGEST_ERROR = 300


def say(message: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"elasticjob-agent: {message}\n")


async def without_harm(what: str, work: Coroutine[None, None, None]) -> None:
    """Do work without which the training goes on: an unexpected error is only logged."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 (it must not end the agent)
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        say(
            f"{what} has failed, and the training goes on: {text} ({place.filename}:{place.lineno})"
        )
