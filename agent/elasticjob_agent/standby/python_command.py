"""Recognizes commands that run a Python script or module. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = re.compile(r"-[uBOsqb]+")
_WITH_VALUE = ("-W", "-X")
_OTHER_STARTS = ("PYTHONSAFEPATH", "PYTHONINSPECT")


def position(command: Sequence[str], container: Mapping[str, str]) -> int | None:
    """Return the position of the script, or of -m, in a command of Python.

    None: it is another command, or one that an interpreter in standby could not run exactly alike.
    """
    if not _PYTHON.fullmatch(PurePosixPath(command[0]).name):
        return None
    if any(container.get(name) for name in _OTHER_STARTS):
        return None
    at = 1
    while at < len(command):
        word = command[at]
        if word in _WITH_VALUE:
            at += 1
        elif word == "-m":
            return at if len(command) > at + 1 else None
        elif not (_FLAGS.fullmatch(word) or word.startswith(_WITH_VALUE)):
            return at if word.endswith(".py") else None
        at += 1
    return None
