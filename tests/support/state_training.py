"""Trains as chaos/synchronous_training.py, and writes slowly to the storage.

It notes for each world at which step it begins, and whether the checkpoint was in memory. Usage:
state_training.py FOLDER SAMPLES STEP_SECONDS SECONDS_TO_COPY
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import elasticjob
from elasticjob import AgentError
from elasticjob._agent_connection import AgentConnection
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


class CopyingAgent:
    """Answers the calls about memory as agents that give their parts to each other.

    An address is the folder in memory of another member on this machine.
    """

    def __init__(self) -> None:
        self._call = AgentConnection.call
        self._root = Path(os.environ[names.ENV_STATE_FOLDER])

    def call(self, agent: AgentConnection, name: str, **fields: str) -> Future[dict[str, Any]]:
        """Take the place of `AgentConnection.call`."""
        if not name.startswith("state_"):
            return self._call(agent, name, **fields)
        answer: Future[dict[str, Any]] = Future()
        try:
            if name == "state_folder":
                answer.set_result({"path": str(self._root), "address": str(self._root)})
            elif name == "state_keep":
                answer.set_result(_copy_part(self._root, Path(fields["peer"]), fields))
            else:
                answer.set_result(_copy_part(Path(fields["from"]), self._root, fields))
        except OSError as error:
            answer.set_exception(AgentError(str(error)))
        return answer


def _copy_part(source: Path, target: Path, fields: dict[str, str]) -> dict[str, Any]:
    place = Path(fields["store"], fields["checkpoint"])
    (target / place).mkdir(parents=True, exist_ok=True)
    part = place / fields["part"]
    shutil.rmtree(target / part, ignore_errors=True)
    shutil.copytree(source / part, target / part)
    shutil.copy(f"{source / part}.json", f"{target / part}.json")
    if (source / place / "complete").exists():
        (target / place / "complete").touch()
    return {}


def main() -> None:
    """Train the remaining samples."""
    folder, samples, seconds, slow = sys.argv[1:5]
    agent = CopyingAgent()
    AgentConnection.call = lambda *arguments, **fields: agent.call(*arguments, **fields)  # type: ignore[method-assign]
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
