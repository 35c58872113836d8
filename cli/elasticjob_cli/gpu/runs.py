"""Runs the training of `elasticjob doctor --gpu` as a user does, and reads what it has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elasticjob_cli.common.local_runs import BASE_VARIABLE, LOCAL

_PROGRAM = Path(__file__).with_name("training.py")
_NAME = "doctor"
_END_SECONDS = 30.0
_POLL_SECONDS = 0.1
_STEPS = 5
T = TypeVar("T")


class CheckFailed(Exception):
    """A check has not shown what it should; the message is for users."""


class Process(NamedTuple):
    """A training process of one world, by what it has written."""

    pid: int
    import_seconds: float
    steps: list[float]


@dataclass(frozen=True)
class LocalRun:
    """A run under way, in a folder of its own, of which nothing may happen after `deadline`."""

    folder: Path
    process: subprocess.Popen[bytes]
    deadline: float

    def until(self, what: str, find: Callable[[], T | None]) -> T:
        """Return what is found once it is there. Raises `CheckFailed` with the log's end."""
        while (found := find()) is None:
            if self.process.poll() is not None or time.monotonic() > self.deadline:
                raise CheckFailed(f"no {what} in time; the output ends with: {self.last_words()}")
            time.sleep(_POLL_SECONDS)
        return found

    def world(self, size: int, *, after: int = 0) -> tuple[int, list[Process]]:
        """Wait for a world after a round that trains; return its round and its processes."""

        def trains() -> tuple[int, list[Process]] | None:
            rounds = [int(path.name.split("-")[0]) for path in self.folder.glob("*-*")]
            newest = max(rounds, default=0)
            found = [each for each in self.processes(newest, size) if len(each.steps) >= _STEPS]
            return (newest, found) if newest > after and len(found) == size else None

        return self.until(f"world of {size} that trains", trains)

    def processes(self, round_: int, size: int) -> list[Process]:
        """Return the processes of a world that have begun, by rank."""
        found = []
        for path in (self.folder / f"{round_}-{rank}" for rank in range(size)):
            # The last line may not be whole.
            if path.exists() and (lines := path.read_text().split("\n")[:-1]):
                found.append(Process(**json.loads(lines[0]), steps=[*map(float, lines[1:])]))
        return found

    def answer(self, name: str, *options: str) -> Any:
        """Return the JSON answer of a command about this run."""
        command = [*_ELASTICJOB, name, LOCAL + _NAME, *options, "-o", "json"]
        return json.loads(output(command, _END_SECONDS, _environment(self.folder)))

    def last_words(self) -> str:
        """Return the end of the run's output."""
        lines = self.folder.with_suffix(".log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-5:])[-600:]


_ELASTICJOB = (sys.executable, "-m", "elasticjob_cli.main")


@contextmanager
def running(
    python: str, folder: Path, deadline: float, size: int, *options: str
) -> Iterator[LocalRun]:
    """Run the training with a number of workers; at the end it has to succeed."""
    folder.mkdir()
    words = (*_ELASTICJOB, "run", "--name", _NAME, "-n", str(size), "--restart-limit", "10")
    command = (*words, *options, "--framework", "pytorch", "--", python, _PROGRAM, folder)
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    run = LocalRun(folder, process, deadline)
    try:
        yield run
        (folder / "end").touch()
        if code := process.wait(_END_SECONDS):
            raise CheckFailed(f"the run has ended with {code}: {run.last_words()}")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(_END_SECONDS)


def output(command: list[str], seconds: float, environment: dict[str, str] | None = None) -> str:
    """Return the output of a command. Raises `CheckFailed` with its errors."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )
    if done.returncode:
        raise CheckFailed(done.stderr.strip()[-600:])
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, BASE_VARIABLE: str(folder.parent / "runs")}
