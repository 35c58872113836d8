"""Trains without computation: counts steps, and continues from its checkpoint.

Usage: checkpointing_training.py FOLDER

The folder is shared by all workers of a job. `step` in it is the checkpoint, written only by a
graceful stop. `worlds` gets a line `round size step` for each world that trains. A file `finish`
ends the training with success.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import elasticjob


def main() -> None:
    """Count until the end."""
    folder = Path(sys.argv[1])
    world = elasticjob.world()
    saved = folder / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    if world.rank == 0:
        with (folder / "worlds").open("a") as worlds:
            worlds.write(f"{world.round} {world.size} {step}\n")
    while not (folder / "finish").exists():
        time.sleep(0.02)
        step += 1
        elasticjob.report_step(step, samples=1)
        if elasticjob.should_stop():
            if world.rank == 0:
                beside = folder / ".step"
                beside.write_text(str(step))
                beside.replace(saved)
            elasticjob.confirm_stop()
            return


if __name__ == "__main__":
    main()
