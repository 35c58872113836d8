"""Runs the training of an example, and records when it does what; its pauses are measured.

`python paused_training.py PROGRAM`, in the environment of a job. Each process writes a file in
RECORDS: a JSON list [event, seconds since 1970] in each line.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elasticjob

DEVICE_SECONDS = 0.02
"""What a step waits for in addition, as for a device: the CPUs are free for newcomers."""
CHECKPOINT_STEPS = 50


class Record:
    """The file of one process."""

    def __init__(self) -> None:
        """Open it; its name says which process of which world this is."""
        world = elasticjob.world()
        name = f"{world.round:06}-{world.rank:03}-{world.size:03}-{os.getpid()}.jsonl"
        self._file = Path(os.environ["RECORDS"], name).open("a", buffering=1)  # noqa: SIM115

    def write(self, event: str, at: float | None = None) -> None:
        """Write a line."""
        self._file.write(json.dumps([event, time.time() if at is None else at]) + "\n")


class RecordedCheckpointer(elasticjob.Checkpointer):
    """Records each step. The program makes it when it has joined its world."""

    began = imported = 0.0

    def __init__(self, *folder: Any, **options: Any) -> None:
        """Record the beginning, too."""
        self._record = Record()
        self._record.write("began", self.began)
        self._record.write("imported", self.imported)
        self._record.write("joined")
        super().__init__(*folder, **options)
        self._record.write("found")

    def step(
        self, step: int, save: Callable[[str], object], *, due: bool | None = False, **report: Any
    ) -> None:
        """Wait for the device, and save more often than the example."""
        time.sleep(DEVICE_SECONDS)
        self._record.write("step")
        super().step(step, save, due=step % CHECKPOINT_STEPS == 0, **report)


def main(program: str) -> None:
    """Train until the end of the world."""
    RecordedCheckpointer.began = time.time()
    elasticjob.Checkpointer = RecordedCheckpointer  # type: ignore[misc]
    train = runpy.run_path(program)["main"]
    RecordedCheckpointer.imported = time.time()
    train()


if __name__ == "__main__":
    main(sys.argv[1])
