"""Recognizes commands that run a Python script or module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = re.compile(r"-[uBOsqb]+")
_WITH_VALUE = ("-W", "-X")
_ENV = "/usr/bin/env"
_FIRST_LINE_BYTES = 255
"""Linux reads as much of a program's first line."""
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


def of_console_script(command: Sequence[str], container: Mapping[str, str]) -> list[str] | None:
    """Return the command of Python that the kernel makes of a script with "#!" and Python.

    None: the command is another one, or has options with which `position` recognizes none.
    """
    program = shutil.which(command[0], path=container.get("PATH"))
    if program is None or any(container.get(name) for name in _OTHER_STARTS):
        return None
    try:
        with Path(program).open("rb") as file:
            start, _, words = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0].partition(b"#!")
        python = words.decode().split()
    except (OSError, ValueError):
        return None
    if start or len(python) > 2:  # the kernel passes all options as one argument
        return None
    if python[:1] == [_ENV]:
        del python[0]
    known = python and _PYTHON.fullmatch(PurePosixPath(python[0]).name)
    if not known or not all(_FLAGS.fullmatch(word) for word in python[1:]):
        return None
    return [*python, program, *command[1:]]
