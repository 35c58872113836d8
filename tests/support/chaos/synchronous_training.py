"""Trains data-parallel.

All processes meet after every step, and save the model with the account of its data. Usage:
synchronous_training.py FOLDER SAMPLES STEP_SECONDS [master]

With `master` they agree on their saves through the master, else by a collective of their own.
If GO_FILE names a file, each world is slow after its first steps until that file exists, so that
data is left for the worlds that a test still forms.

Its processes begin from standby. Some jobs keep their checkpoints in memory, and some write them in
a thread while they train on. The model is the list of its training data: [shard, round, rank].
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import elasticjob
import numpy  # noqa: F401 (an installed package, which processes in standby import)
from elasticjob.checkpoint_storage import Folder
from elasticjob_api.meta import Json

from tests.support.chaos.training import Agreement, Log, WorldEnded, end_of_world

SHARD_SIZE = 4
SAVED_EVERY = 20
_FIRST_STEPS = 15


def newest(volume: Path) -> Json:
    """Return the model of the newest checkpoint."""
    found = Folder(volume).complete()
    if not found:
        return load(None)
    return load(str(volume / found[-1]))


def load(checkpoint: str | None) -> Json:
    """Return the model of a checkpoint; empty if there is none."""
    if not checkpoint:
        return {"model": [], "end": False}
    loaded: Json = json.loads(Path(checkpoint, "model").read_text())
    return loaded


class Training:
    """One process of one world."""

    def __init__(self, folder: Path, samples: int, seconds: float, *, by_master: bool) -> None:
        self.seconds = seconds
        self.go_file = os.environ.get("GO_FILE")
        self.log = Log(folder / "log")
        self.world = elasticjob.world()
        self.agreement = Agreement()
        self.asynchronous = samples // SHARD_SIZE % 3 == 0
        self.checkpointer = elasticjob.Checkpointer(
            folder / "volume",
            any_rank=None if by_master else self._any_rank,
            timeout=5,
            asynchronous=self.asynchronous,
        )
        self.model: list[list[int]] = load(self.checkpointer.found)["model"]
        self.end = False
        self.shards = self.checkpointer.open(
            elasticjob.shards, "numbers", size=samples, shard_size=SHARD_SIZE, prefetch=8
        )

    def run(self) -> None:
        """Train until the end, or until some rank is asked to stop."""
        for steps in range(1, sys.maxsize):
            shard = self.shards.take(timeout=0.3)
            if shard is not None:
                time.sleep(1.0 if self._is_held(steps) else self.seconds)
                self.log.write(trained=shard.id)
            mine = {
                "trained": None if shard is None else shard.id,
                "finished": self.shards.finished,
            }
            gathered = self.agreement.gather(mine)
            trained = [
                (rank, each["trained"])
                for rank, each in enumerate(gathered)
                if each["trained"] is not None
            ]
            self.model += [[shard, self.world.round, rank] for rank, shard in trained]
            end = not trained and all(each["finished"] for each in gathered)
            step, self.end = self.agreement.answer((len(self.model), end))
            if self.end:
                self.checkpointer.finish(step, self._save)
                return
            if shard is not None:
                self.shards.done(shard)
            report = (
                {"samples": SHARD_SIZE, "compute_seconds": self.seconds}
                if shard is not None
                else {}
            )
            self.checkpointer.step(step, self._save, due=steps % SAVED_EVERY == 0, **report)

    def _is_held(self, steps: int) -> bool:
        if self.go_file is None or steps <= _FIRST_STEPS:
            return False
        return not Path(self.go_file).exists()

    def _any_rank(self, mine: bool) -> bool:
        gathered = self.agreement.gather(mine)
        answer: bool = self.agreement.answer(any(gathered))
        return answer

    def _save(self, folder: str) -> Callable[[], object] | None:
        """Write the model of rank 0, at once or in a thread."""
        if self.world.rank != 0:
            return None
        text = json.dumps({"model": self.model, "end": self.end})

        def write() -> None:
            Path(folder, "model").write_text(text)

        if self.asynchronous:
            return write
        write()
        return None


def main() -> None:
    """Train the remaining samples."""
    try:
        folder, samples, seconds = sys.argv[1:4]
        by_master = sys.argv[4:] == ["master"]
        Training(Path(folder), int(samples), float(seconds), by_master=by_master).run()
    except (WorldEnded, elasticjob.AgentError) as error:
        print(f"this world has ended: {error}", flush=True)
        end_of_world()


if __name__ == "__main__":
    main()
