"""Runs `elasticjob run` as a process, and checks its output, its processes and its leftovers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from elasticjob_cli.common.local_runs import BASE_VARIABLE

from tests.support.programs import ran
from tests.support.wait import wait_until

COMMAND = str(Path(sys.executable).with_name("elasticjob"))
SECONDS = 60
_MARK = "RUN_OF_A_TEST"
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)

TRAINING = """
import os, time
from pathlib import Path

import elasticjob

world = elasticjob.world()
checkpointer = elasticjob.Checkpointer(os.environ["CHECKPOINTS"])
step = int(Path(checkpointer.found, "step").read_text()) if checkpointer.found else 0
print(f"round {world.round} size {world.size} from step {step}")

def save(folder):
    if world.rank == 0:
        Path(folder, "step").write_text(str(step))

try:
    while not Path(os.environ["END"]).exists():
        time.sleep(0.02)
        step += 1
        checkpointer.step(step, save)
    checkpointer.finish(step, save)
except SystemExit:
    print(f"stopped after step {step}")
    raise
print(f"finished with step {step}")
"""
"""A program that counts and saves steps until a file exists."""


class LocalRun:
    """One run, and the commands of its user."""

    def __init__(self, folder: Path, runs: Path) -> None:
        """Prepare.

        Args:
            folder: the folder of the program and its output.
            runs: the folder of the runs' folders.
        """
        self.folder = folder
        self.runs = runs
        self._log = folder / "log"
        self.end = folder / "end"
        self.environment = {
            **os.environ,
            BASE_VARIABLE: str(runs),
            _MARK: str(folder),
            "KUBECONFIG": str(folder / "none"),
            "CHECKPOINTS": str(folder / "checkpoints"),
            "END": str(self.end),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def program(self, text: str, name: str = "training.py") -> str:
        """Write a training program."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(self, *arguments: str, text: bytes = b"") -> subprocess.Popen[bytes]:
        """Begin a run with a text as its input; its output goes to the log."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [COMMAND, "run", *arguments],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        self.processes.append(process)
        return process

    def start_on_terminal(self, terminal: int, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a run in the foreground of a terminal, in a session of its own."""
        process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, COMMAND, "run", *arguments],
            env=self.environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def call(self, *arguments: str) -> tuple[int, str]:
        """Run another command to its end; return its exit code and output."""
        done = ran(COMMAND, *arguments, environment=self.environment)
        return done.returncode, done.stderr + done.stdout

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Begin another command, whose output is a pipe."""
        with subprocess.Popen(
            [COMMAND, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def log(self) -> str:
        """Return the output of all runs."""
        return self._log.read_text() if self._log.exists() else ""

    def numbers(self, pattern: str) -> list[int]:
        """Return the number of each match in the log."""
        return [int(number) for number in re.findall(pattern, self.log())]

    def wait_for_line(self, pattern: str, *, after: int = 0) -> None:
        """Wait until the log matches a pattern after its first `after` characters."""
        found = re.compile(pattern).search
        wait_until(
            f"a line {pattern!r}",
            lambda: found(self.log(), after),
            seconds=SECONDS,
            explain=self.log,
        )

    def wait_for_end(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a run and return its exit code."""
        wait_until(
            "the end of the run",
            lambda: process.poll() is not None,
            seconds=SECONDS,
            explain=self.log,
        )
        return process.returncode

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Let a run finish its training, which succeeds."""
        self.end.touch()
        assert self.wait_for_end(process) == 0, self.log()

    def part(self, process: subprocess.Popen[bytes], module: str) -> list[psutil.Process]:
        """Return the processes of a run that run this module: masters or agents."""
        return [
            child for child in psutil.Process(process.pid).children() if module in child.cmdline()
        ]

    def left(self) -> list[str]:
        """Return the commands of all processes that a run of this test has begun, and folders."""
        found = [
            command for process in psutil.process_iter() if (command := self._command(process))
        ]
        return found + [path.name for path in self.runs.glob("[a-z]*")]

    def wait_until_nothing_is_left(self) -> None:
        """Wait until neither processes nor folders of runs are left."""
        wait_until(
            "nothing is left", self.left, lambda left: not left, seconds=SECONDS, explain=self.log
        )

    def _command(self, process: psutil.Process) -> str:
        """Return the command of a process that a run of this test has begun.

        Empty for any other process, and once it ends.
        """
        try:
            return (
                " ".join(process.cmdline())
                if process.environ().get(_MARK) == str(self.folder)
                else ""
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return ""


@contextmanager
def local_run(folder: Path) -> Iterator[LocalRun]:
    """Yield a function that begins runs, and kill the remaining ones at the end.

    Their folders are in a separate short path: tests' own paths leave no room for sockets.
    """
    with tempfile.TemporaryDirectory(prefix="ej-") as runs:
        run = LocalRun(folder, Path(runs))
        try:
            yield run
        finally:
            for process in run.processes:
                process.kill()  # the guard ends the rest
                process.wait()
            run.wait_until_nothing_is_left()


def size_and_step(log: str) -> Sequence[tuple[int, int]]:
    """Return the size of each world in which rank 0 has begun, and its first step."""
    return [
        (int(size), int(step))
        for size, step in re.findall(r"\[0\] round \d+ size (\d+) from step (\d+)", log)
    ]
