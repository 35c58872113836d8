"""Runs a long program in the foreground, so that an interrupted command stops the program too."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def run_in_foreground(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], tick: Callable[[], None]
) -> tuple[int, str]:
    """Run a program to its end, calling `tick` meanwhile; return its exit status and all it wrote.

    An exception, such as an interrupt, kills the program with its children.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=0.25)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        output.seek(0)
        return status, output.read().decode(errors="replace")


def last_lines(text: str, count: int) -> str:
    """Return the last lines that are not empty."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
