"""Trains shards of a data set, one a step, as files in its folder say.

Usage: sharded_training.py FOLDER SHARDS PREFETCH

Every worker writes each trained shard as a line into `trained-<its index>`. A file `hang` contains
a round: its processes stop working, and those of later rounds wait until a file `go` exists. A file
`wait-at` contains a step: later steps wait for `go`, too, or until the worker is to stop. A file
`slow` contains an index: that worker is ten times slower.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import elasticjob
from elasticjob_api import names

STEP_SECONDS = 0.02


def main() -> None:
    """Train the remaining shards."""
    folder = Path(sys.argv[1])
    world = elasticjob.world()
    index = os.environ[names.ENV_INDEX]
    mine = folder / f"trained-{index}"
    step = len(mine.read_text().splitlines()) if mine.exists() else 0
    size = int(sys.argv[2])
    prefetch = int(sys.argv[3])
    shards = elasticjob.shards("numbers", size=size, shard_size=1, prefetch=prefetch)
    for shard in shards:
        goes = folder / "go"
        while (at := _text(folder / "wait-at")) and step >= int(at) and not goes.exists():
            if elasticjob.should_stop():
                break
            time.sleep(0.02)
        while (of := _text(folder / "hang")) and (world.round == int(of) or not goes.exists()):
            time.sleep(0.02)
        seconds = STEP_SECONDS * (10 if _text(folder / "slow") == index else 1)
        time.sleep(seconds)
        step += 1
        with mine.open("a") as trained:
            trained.write(f"{shard.id}\n")
        shards.done(shard)
        elasticjob.report_step(step, samples=1, compute_seconds=seconds)
        if elasticjob.should_stop():
            shards.flush(timeout=5)
            elasticjob.confirm_stop()
            return
    shards.flush(timeout=30)


def _text(file: Path) -> str:
    """Return a file's content; empty if a test has removed it."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
