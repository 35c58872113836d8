"""Trains with workers that do not wait for each other.

Each commits what it has trained, then reports it done. Usage: independent_training.py FOLDER
SAMPLES STEP_SECONDS

A commit is a line of the process's own file in `FOLDER/volume`, which may be full. `FOLDER/log`
lists every trained sample, and the stored ones, which are never leased again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import elasticjob

from tests.support.chaos.training import Log

STORED_EVERY = 16
SHARD_SIZE = 4


def main() -> None:
    """Train the remaining samples."""
    folder = Path(sys.argv[1])
    samples = int(sys.argv[2])
    seconds = float(sys.argv[3])
    log = Log(folder / "log")
    unstored = list[int]()
    commits = folder / "volume" / log.path.name
    shards = elasticjob.shards(
        "numbers", size=samples, shard_size=SHARD_SIZE, shuffle=True, seed=1, prefetch=8
    )
    for step, shard in enumerate(shards, start=1):
        time.sleep(seconds)
        log.write(trained=shard.id)
        with commits.open("a") as file:  # fails if the disk is full: then the process crashes
            file.write(f"{shard.id}\n")
        log.write(committed=shard.id)
        shards.done(shard)
        unstored.append(shard.id)
        elasticjob.report_step(step, samples=SHARD_SIZE, compute_seconds=seconds)
        stop = elasticjob.should_stop()
        if stop or len(unstored) >= STORED_EVERY:
            if shards.flush(timeout=5):
                log.write(stored=unstored)
                unstored = []
            if stop:
                elasticjob.confirm_stop()
                return
    shards.flush(timeout=30)


if __name__ == "__main__":
    main()
