"""Finds how the training program failed in what it and its launcher wrote at the end. Pure.

A launcher writes more after the program's last lines, and hides them: torchrun its own traceback
and a summary, a dying Python the tracebacks of the processes that it was about to start. Torchrun
also exits with 1 in place of the exit code of the process that failed first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from elasticjob_processes.killing import shell_code

_TORCHRUN_REPORTS = re.compile(
    r"failed \(exitcode: (-?\d{1,3})\) local_rank: \d+ \(pid: \d+\) of binary: "
)
_TORCHRUN_ENDS_OTHERS = re.compile(r"Sending process \d+ closing signal SIG[A-Z]+$")
_TORCHRUNS_CODE = 1

_TRACEBACK = "Traceback (most recent call last):"
_STARTED_BY_PYTHON = '  File "<string>", line 1, in <module>'
_PARENT_HAS_ENDED = "FileNotFoundError: [Errno 2] No such file or directory"
"""Without a file's name: a semaphore of the parent process, which has ended."""


def of_program(code: int, lines: Sequence[str]) -> tuple[int, list[str]]:
    """Return the exit code and the last lines of the program that a launcher has started.

    If only torchrun has written lines, for example because the program's output goes to a file, all
    of them are returned, with its report of the failed process at the end.

    Args:
        code: the exit code of the command, as a shell reports it.
        lines: the last ones that it has written.
    """
    own = list(lines)
    reports = [(_TORCHRUN_REPORTS.search(line), at) for at, line in enumerate(lines)]
    if code == _TORCHRUNS_CODE and (found := [each for each in reports if each[0]]):
        report, at = found[-1]
        assert report is not None
        code = shell_code(int(report[1])) or code
        own = [line for line in lines[:at] if not _TORCHRUN_ENDS_OTHERS.search(line)]
        if not own:
            own = [*lines[at + 1 :], lines[at]]
    own = list(_without_orphans(own))
    return code, own or list(lines)


def _without_orphans(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines without tracebacks of processes whose parent ended during their start."""
    held: list[str] = []
    for line in lines:
        if line == _TRACEBACK:
            yield from held
            held = [line]
        elif not held:
            yield line
        elif len(held) == 1 and line != _STARTED_BY_PYTHON:
            yield from (*held, line)
            held = []
        elif line.startswith(" "):
            held.append(line)
        else:
            if line != _PARENT_HAS_ENDED:
                yield from (*held, line)
            held = []
    yield from held
