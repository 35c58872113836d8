"""Explains why a command could not be started."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from elasticjob_processes.exec_child import cannot_start_code

from elasticjob_agent.process_environment import MAX_ARG_STRLEN


class CannotStart(Exception):
    """A process cannot be started.

    Attributes:
        code: the exit code of the container: 71 if the node is short of memory or processes, which
            may be temporary; 126 or 127 if another attempt cannot succeed.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def cannot_start(
    error: OSError, command: Sequence[str], environment: Mapping[str, str]
) -> CannotStart:
    """Return the failure of a command in an environment, with its reason."""
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.E2BIG:
        why += f": {_longest(command, environment)}"
    return CannotStart(
        cannot_start_code(error), f"elasticjob-agent: cannot run {command[0]!r}: {why}"
    )


def _longest(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the argument or variable that is too long for the kernel, and its bound."""
    if max(map(len, command)) > max(map(len, environment.values()), default=0):
        arguments = {f"argument {number}": text for number, text in enumerate(command)}
        size = sum(_bytes(text) for text in command)
        return _explained("command", "argument", arguments, size=size, bound=MAX_ARG_STRLEN - 1)
    longest = max(environment, key=lambda name: len(environment[name]))
    size = sum(_bytes(name) + _bytes(value) for name, value in environment.items())
    bound = MAX_ARG_STRLEN - _bytes(longest) - 1
    return _explained("environment", "variable", environment, size=size, bound=bound)


def _explained(what: str, part: str, texts: Mapping[str, str], *, size: int, bound: int) -> str:
    longest = max(texts, key=lambda name: len(texts[name]))
    return (
        f"its {what} has {size} bytes, most of them {longest} with {_bytes(texts[longest]) - 1}; "
        f"one {part} can have {bound} of them, and all together what `getconf ARG_MAX` prints"
    )


def _bytes(text: str) -> int:
    """Return the size of a text with its final zero byte."""
    return len(os.fsencode(text)) + 1
