"""Trains as chaos/synchronous_training.py, and writes slowly to the storage.

It notes for each world at which step it begins, and whether the checkpoint was in memory. Usage:
state_training.py FOLDER SAMPLES STEP_SECONDS SECONDS_TO_COPY
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import elasticjob
from elasticjob.checkpoint_storage import Folder
from elasticjob_api import names

from tests.support.chaos.synchronous_training import Training
from tests.support.chaos.training import WorldEnded, end_of_world


class SlowFolder:
    """Copies a file for some seconds before it writes it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._copy = Folder.copy

    def copy(
        self, folder: Folder, name: str, file: str, source: Path, stopped: Callable[[], bool]
    ) -> None:
        """Take the place of `Folder.copy`."""
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and not stopped():
            time.sleep(0.01)
        self._copy(folder, name, file, source, stopped)


def main() -> None:
    """Train the remaining samples."""
    folder, samples, seconds, slow = sys.argv[1:5]
    slow_folder = SlowFolder(float(slow))

    def copy(*arguments: object) -> None:
        slow_folder.copy(*arguments)  # type: ignore[arg-type]

    Folder.copy = copy  # type: ignore[method-assign, assignment]
    try:
        training = Training(Path(folder), int(samples), float(seconds), by_master=True)
        found = training.checkpointer.found or ""
        in_memory = found.startswith(os.environ[names.ENV_STATE_FOLDER])
        training.log.write(
            begins_at=len(training.model), in_memory=in_memory, round=training.world.round
        )
        training.run()
    except (WorldEnded, elasticjob.AgentError) as error:
        print(f"this world has ended: {error}", flush=True)
        end_of_world()


if __name__ == "__main__":
    main()
