"""The tail of standard error, and a process that cannot be started."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

from elasticjob_agent import lifecycle
from elasticjob_agent.training_process import TAIL_BYTES, TAIL_LINES, Tail, shown
from hypothesis import given
from hypothesis import strategies as st


@given(st.binary(max_size=5000), st.lists(st.integers(0, 5000), max_size=10))
def test_the_tail_is_the_same_however_the_output_is_split(output: bytes, cuts: list[int]) -> None:
    whole = Tail()
    pieces = Tail()
    whole.add(output)
    borders = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    for start, end in itertools.pairwise(borders):
        pieces.add(output[start:end])
    assert whole.lines() == pieces.lines()
    assert (
        len(shown(whole.lines()).encode()) <= 3 * TAIL_BYTES
    )  # a broken character becomes one of three bytes


def test_the_tail_is_the_last_lines() -> None:
    tail = Tail()
    tail.add(b"".join(b"line %d\n\n" % n for n in range(100)) + b"last")
    expected = [*(f"line {n}" for n in range(101 - TAIL_LINES, 100)), "last"]
    assert shown(tail.lines()).splitlines() == expected


WITHOUT_FILES = """
import asyncio, resource
from elasticjob_agent.process import ProcessSupervisor

async def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no file can be opened any more
    try:
        processes = ProcessSupervisor(["true"], {}).start([{}])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(*await processes.wait())

asyncio.run(main())
"""
"""A separate program, because waiting for training processes kills all other children."""


def test_a_start_that_fails_for_lack_of_resources_may_be_retried() -> None:
    command = [sys.executable, "-c", WITHOUT_FILES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = f"{os.EX_OSERR} elasticjob-agent: cannot run 'true': too many open files\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    assert os.EX_OSERR not in lifecycle.CANNOT_RUN
