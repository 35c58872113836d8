"""Finds in the last words of a program why it has failed, and names the signal of its exit code.

A program's last line is often no reason: PyTorch warns at its exit, and the agent writes its own
lines among those of the program.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from elasticjob_api import names

MAX_MESSAGE = 1024
"""Characters that are shown of a program's last words."""
_PREFIX = re.compile(r"(?:\[(?:rank)?\d+\]:? ?)+")
"""The rank before each line, from the agent (`[3] `) or PyTorch (`[rank3]: `)."""
TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")
_OTHER_ERRORS = re.compile(r"Fatal Python error: |panic: |what\(\):  |terminate called ")
"""What Python, Go and C++ write when they end a program."""
_WARNING = re.compile(r"\[W[\d ]|.*Warning: ")
"""A warning, as PyTorch's libraries and Python write it."""
_EARLIER_RETRIES = re.compile(r"^WARNING: Retrying \(Retry\(total=[1-9].*\n", re.MULTILINE)
"""The retries of pip but the last one, which has the same reason."""
_AGENT = "elasticjob-agent: "
_REASONS = ("cannot run ", "not started: ", "broken node: ", names.KILLED_FOR_MEMORY)
"""The beginnings of the agent's lines that say why a program has ended; others only inform."""
_ENDED_FROM_OUTSIDE = (128 + signal.SIGKILL, 128 + signal.SIGTERM)


def cause(text: str, code: int | None = None) -> str:
    """Return the line that says why a program has failed; empty if there is none.

    This is the agent's reason, or else the program's last exception, or else its last line that is
    no warning. A program that was killed has reported no exception about that.

    Args:
        text: its last words, which may be those of its log.
        code: its exit code as a shell reports it; None if unknown.
    """
    every = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in every if not _only_informs(line)] or every
    if not lines or _of_agent(lines[-1]):
        return lines[-1] if lines else ""
    found = "" if code in _ENDED_FROM_OUTSIDE else _last_exception(text.splitlines())
    others = [line for line in lines if not _WARNING.match(_without_rank(line))]
    return found or (others or lines)[-1]


def cause_first(text: str, most: int, code: int | None = None) -> str:
    """Return a text of at most this size that begins with its cause; its last part follows.

    A text of one line, or one that begins with its cause, is returned as it is, but for retries.
    """
    text = _EARLIER_RETRIES.sub("", text.strip())
    first = cause(text, code)[:most]
    if text.startswith(first) and len(text) <= most:
        return text
    room = most - len(first) - 1
    rest = text if len(text) <= room else text[-room:].partition("\n")[2] if room > 0 else ""
    return f"{first}\n{rest}" if rest else first


def exit_text(code: int) -> str:
    """Return the description of an exit code, such as `exit code 137 (SIGKILL)`."""
    name = signal_name(code - 128)
    return f"exit code {code} ({name})" if name.startswith("SIG") else f"exit code {code}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of_agent(line: str) -> bool:
    return _without_rank(line).startswith(_AGENT)


def _only_informs(line: str) -> bool:
    said = _without_rank(line).removeprefix(_AGENT)
    return _of_agent(line) and not said.startswith(_REASONS)


def _without_rank(line: str) -> str:
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line


def _last_exception(lines: Iterable[str]) -> str:
    """Return the last line that ends a traceback, or says that a program ends by an error."""
    last = ""
    in_traceback = False
    for whole in lines:
        line = _without_rank(whole)
        if line.strip() == TRACEBACK:
            in_traceback = True
        elif _OTHER_ERRORS.match(line.strip()):
            last = whole.strip()
        elif in_traceback and line[:1].strip() and _EXCEPTION.match(line):
            last = whole.strip()
            in_traceback = False
    return last
