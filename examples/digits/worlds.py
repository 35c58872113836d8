"""Trains hand-written digits with JAX in processes that continue when their number changes.

`elasticjob.jax.worlds` connects the running processes again, and gives a new process the state from
the memory of another one. It uses the data and the model of train.py beside it.

Its job has `onWorldChange: Notify`. Environment: as train.py. A checkpoint in CHECKPOINT_DIR is
read only when no process has the state, as after a suspension.
"""

from __future__ import annotations

import os
from pathlib import Path

import elasticjob
from train import (  # type: ignore[import-not-found, unused-ignore] # before JAX: sets its threads
    BATCH,
    CHECKPOINT_STEPS,
    LOG_STEPS,
    SEED,
    TRAINED,
    Processes,
    State,
    Trainer,
    forward,
    initial_state,
    load_digits,
    padded,
)

import elasticjob.jax  # isort: skip
import numpy as np


def batch_of(step: int) -> np.ndarray:
    """Return the images of one step, the same in all ranks. Each epoch has another order."""
    epoch, position = divmod(step, TRAINED // BATCH)
    order = np.random.default_rng((SEED, epoch)).permutation(TRAINED)
    return order[position * BATCH : (position + 1) * BATCH]


def main() -> None:
    """Train, in each world of the job."""
    images, labels = load_digits()
    initial = initial_state()
    state = elasticjob.jax.State(params=initial.params, velocity=initial.velocity, samples=0)
    total = int(os.environ.get("EPOCHS", "250")) * (TRAINED // BATCH)
    folder = Path(os.environ["CHECKPOINT_DIR"], elasticjob.world().job)

    for world in elasticjob.jax.worlds(state, folder=folder):
        with world:
            here = f"round {world.round} size {world.size}"
            if world.rank == 0:
                print(f"{here} from step {state.step}", flush=True)
            trainer = Trainer(Processes(), State(state.params, state.velocity, state.step))
            while state.step < total:
                mine = batch_of(state.step)[world.rank :: world.size]
                loss, trained = trainer.step(*padded(images, labels, mine, world.size, 1 / BATCH))
                state.params = trainer.params
                state.velocity = trainer.velocity
                state.step += 1
                state.samples += trained
                if world.rank == 0 and state.step % LOG_STEPS == 0:
                    print(f"step {state.step}/{total} {here} loss {loss:.4f}", flush=True)
                world.commit(
                    total=total,
                    samples=len(mine),
                    metrics={"loss": loss},
                    save=state.step % CHECKPOINT_STEPS == 0,
                )
        if world.rank == 0 and state.step < total:
            print(f"{here} stopped after step {state.step}", flush=True)

    if world.rank == 0:
        guessed = np.asarray(forward(np.asarray(state.params), images[TRAINED:])).argmax(axis=1)
        accuracy = float((guessed == labels[TRAINED:]).mean())
        metrics = {"accuracy": accuracy, "trained": state.samples}
        elasticjob.report_step(total, total=total, metrics=metrics)
        done = f"{state.step} steps, {state.samples} samples"
        print(f"finished: {done}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
