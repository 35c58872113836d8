"""Trains with the real JAX in processes that continue from world to world.

All ranks exchange the numbers of their shards after each step, and commit. Usage:
continuing_training.py FOLDER SAMPLES STEP_SECONDS

The model is the list of its training data: [shard, round, rank]. It is in the memory of the
processes, and in a checkpoint after every twentieth step. At the end it is in `FOLDER/volume/end`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import elasticjob.jax
import numpy as np
from elasticjob import Shard
from elasticjob._committed_state import CommittedShards
from jax.experimental import multihost_utils

from tests.support.chaos.synchronous_training import SAVED_EVERY, SHARD_SIZE
from tests.support.chaos.training import END, Log

NONE = -1


def step(
    state: elasticjob.jax.State,
    world: elasticjob.jax.World,
    shards: CommittedShards[Shard],
    log: Log,
    seconds: float,
) -> bool:
    """Train a shard, if there is one now; return whether no rank has one any more."""
    shard = shards.take(timeout=0.3)
    if shard is not None:
        time.sleep(seconds)
        log.write(trained=shard.id)
    mine = np.array([NONE if shard is None else shard.id, int(shards.finished)])
    gathered = np.atleast_2d(multihost_utils.process_allgather(mine)).tolist()
    trained = [
        [number, world.round, rank] for rank, (number, _) in enumerate(gathered) if number != NONE
    ]
    state.model = [*state.model, *trained]
    if shard is not None:
        shards.done(shard)
    state.step += 1
    ends = not trained and all(finished for _, finished in gathered)
    world.commit(
        samples=0 if shard is None else SHARD_SIZE,
        compute_seconds=None if shard is None else seconds,
        save=state.step % SAVED_EVERY == 0,
    )
    return ends


def main() -> None:
    """Train the remaining samples."""
    folder = Path(sys.argv[1])
    samples = int(sys.argv[2])
    state = elasticjob.jax.State(model=[])
    shards = state.open(
        elasticjob.shards, "numbers", size=samples, shard_size=SHARD_SIZE, prefetch=8
    )
    for world in elasticjob.jax.worlds(state, folder=folder / "volume"):
        with world:
            log = Log(folder / "log")
            while not step(state, world, shards, log, float(sys.argv[3])):
                pass
    if world.rank == 0:
        text = json.dumps(state.model)
        while True:
            try:
                (folder / "volume" / END).write_text(text)
                break
            except OSError:  # the disk is full for a while
                time.sleep(1)


if __name__ == "__main__":
    main()
