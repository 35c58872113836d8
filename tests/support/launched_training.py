"""Sums the numbers of samples by all processes of a world, until FOLDER has a file `finish`.

A step adds the numbers of a batch, of which each rank has a part. Prints the worlds as
`e2e/trial.py` reads them, and at the end the steps, the samples and their sum. zero_training.py
also trains a model.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import elasticjob
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

FOLDER = Path(os.environ["FOLDER"])
BATCH = 12
CHECKPOINT_STEPS = 20
STEP_SECONDS = 0.02


def all_ranks_sum(*numbers: int) -> list[int]:
    """Return the sums over all ranks."""
    sums = torch.tensor(numbers, dtype=torch.int64)
    dist.all_reduce(sums)
    return [int(each) for each in sums]


def main(new_model: Callable[[str | None], Any] | None = None) -> None:
    """Train in the world of the launcher, also the model that begins at a checkpoint."""
    dist.init_process_group("gloo")
    world = elasticjob.world()
    rank = dist.get_rank()
    size = dist.get_world_size()
    assert (world.rank, world.size) == (rank, size)
    assert "LOCAL_RANK" in os.environ
    checkpointer = elasticjob.Checkpointer(
        FOLDER / "checkpoints", any_rank=lambda mine: all_ranks_sum(mine)[0] > 0
    )
    step = samples = total = 0
    if checkpointer.found:
        step, samples, total = json.loads(Path(checkpointer.found, "state").read_text())
    model = new_model(checkpointer.found) if new_model else None

    def save(folder: str) -> None:
        if rank == 0:
            Path(folder, "state").write_text(json.dumps([step, samples, total]))
        if model:
            model.save(folder)

    def show(event: str) -> None:
        state = f" state {model.digest()}" if model else ""
        if rank == 0:
            print(f"{here} {event} step {step}{state}", flush=True)

    here = f"round {world.round} size {size}"
    show("from")
    try:
        while not all_ranks_sum((FOLDER / "finish").exists())[0]:
            mine = range(step * BATCH + rank, (step + 1) * BATCH, size)
            if model:
                model.train(mine, BATCH)
            added = all_ranks_sum(len(mine), sum(mine))
            step += 1
            samples += added[0]
            total += added[1]
            time.sleep(STEP_SECONDS)
            if rank == 0 and step % 5 == 0:
                print(f"{here} step {step}", flush=True)
            checkpointer.step(step, save, due=step % CHECKPOINT_STEPS == 0)
    except SystemExit:
        show("stopped after")
        return
    checkpointer.finish(step, save)
    if model:
        model.check(step, BATCH)
    if rank == 0:
        print(f"end: {step} steps, {samples} samples, sum {total}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
