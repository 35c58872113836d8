"""Trains with the real JAX in processes that continue from world to world.

Each step trains a batch that depends on the step alone, of which each rank takes a part, and a
shard of a data set. If the folder FOLDER has a file `finish`, each rank takes several shards in a
step, and the training ends with the data set.
Each rank prints a digest of the parameters after each commit. At its end it prints the difference
from an undisturbed training, and whether each sample is in the model once. A process with a file
`fail-PID` fails, and one with a file `hang-PID` waits for ever.

Environment: SLOW (seconds of a step), PAD (numbers that each step reduces in addition, so that a
process is killed in the middle of an all-reduce), SAVED_EVERY (steps between two checkpoints).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import elasticjob.jax
import jax
import jax.numpy as jnp
import numpy as np
from elasticjob import Shard
from elasticjob._committed_state import CommittedShards
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_enable_x64", True)
FOLDER = Path(os.environ["FOLDER"])
SLOW = float(os.environ.get("SLOW", "0.05"))
PAD = int(os.environ.get("PAD") or 0)
BATCH = 16
RATE = 0.01
MOMENTUM = 0.9
SHARDS = int(os.environ.get("SHARDS") or 1500)
SAVED_EVERY = int(os.environ.get("SAVED_EVERY") or 10**9)
LAST_SHARDS = 20
"""The shards that a rank takes in one step of the ending training."""

Parameters = dict[str, Any]


def say(text: str) -> None:
    """Print a line in one piece, with the time and this process."""
    os.write(1, f"\n{time.time():.3f} {os.getpid()} {text}\n".encode())


def digest(parameters: Parameters) -> str:
    """Return a digest of all parameters' bits."""
    found = hashlib.sha256()
    for each in jax.tree.leaves(parameters):
        found.update(np.asarray(each).tobytes())
    return found.hexdigest()[:16]


def batch_of(step: int) -> np.ndarray:
    """Return the inputs of one step, the same in all ranks; the targets are their sums."""
    return np.random.default_rng(step).integers(-8, 9, (BATCH, 8)).astype(np.float64) / 8


def initial(seed: int) -> Parameters:
    """Return parameters and their velocities."""
    drawn = jax.random.normal(jax.random.PRNGKey(seed), (8,))
    here = {"weights": drawn, "bias": jnp.zeros(()), "half": jnp.ones(3, jnp.bfloat16)}
    return {"parameters": here, "velocities": jax.tree.map(jnp.zeros_like, here)}


def loss_of(parameters: Parameters, inputs: Any, weights: Any) -> Any:
    """Return the sum of squares over the batch; padded rows have the weight 0."""
    found = inputs @ parameters["weights"] + parameters["bias"]
    return (weights * (found - inputs.sum(1)) ** 2).sum() / BATCH


def update(live: Parameters, inputs: Any, weights: Any, padding: Any) -> Parameters:
    """Train one step."""
    gradients = jax.grad(loss_of)(live["parameters"], inputs, weights)
    unchanged = padding.sum(0).min() * 0
    velocities = jax.tree.map(
        lambda v, g: (MOMENTUM * v + g + unchanged).astype(v.dtype), live["velocities"], gradients
    )
    parameters = jax.tree.map(lambda p, v: p - RATE * v, live["parameters"], velocities)
    return {"parameters": parameters, "velocities": velocities}


def take(shards: CommittedShards[Shard], most: int) -> list[Shard]:
    """Take shards; fewer if there are no more of them now."""
    taken: list[Shard] = []
    while len(taken) < most and (shard := shards.take(timeout=0.2)):
        taken.append(shard)
    return taken


def undisturbed(live: Parameters, steps: int) -> Parameters:
    """Return what one process alone has after these steps."""
    step_of = jax.jit(update)
    for step in range(steps):
        live = step_of(live, batch_of(step), np.ones(BATCH, np.float64), np.zeros((1, 1)))
    return live


def main() -> None:
    """Train."""
    live = initial(os.getpid())  # the processes differ, until they share the state
    state = elasticjob.jax.State(live=live, trained=[], initial=live)
    shards = state.open(elasticjob.shards, "samples", size=SHARDS, shard_size=1, prefetch=4)
    say("ready")
    for world in elasticjob.jax.worlds(state, folder=FOLDER / "checkpoints"):
        with world:
            here = f"rank {world.rank} of {world.size} round {world.round}"
            say(f"world: {here} step {state.step} {digest(state.live)}")
            mesh = Mesh(np.array(jax.devices()), ("ranks",))
            split = NamedSharding(mesh, PartitionSpec("ranks"))
            replicated = NamedSharding(mesh, PartitionSpec())
            spread = partial(jax.make_array_from_process_local_data, split)
            step_of = jax.jit(update, out_shardings=replicated)
            rows = -(-BATCH // world.size)
            padding = spread(np.ones((1, max(PAD, 1)), np.float64))
            while True:
                if (FOLDER / f"fail-{os.getpid()}").exists():
                    raise RuntimeError("an error of the program")
                if (FOLDER / f"hang-{os.getpid()}").exists():
                    say("hangs")
                    threading.Event().wait()
                ending = (FOLDER / "finish").exists()
                taken = take(shards, LAST_SHARDS if ending else 1)
                mine = batch_of(state.step)[world.rank :: world.size]
                inputs = np.zeros((rows, 8), np.float64)
                inputs[: len(mine)] = mine
                weights = (np.arange(rows) < len(mine)).astype(np.float64)
                state.live = step_of(state.live, spread(inputs), spread(weights), padding)
                own = [shard.start for shard in taken] + [-1] * (LAST_SHARDS - len(taken))
                row = np.array([int(ending and shards.finished), *own])
                found = np.atleast_2d(multihost_utils.process_allgather(row))
                state.trained += [int(number) for number in found[:, 1:].flat if number >= 0]
                shards.done(*taken)
                state.step += 1
                time.sleep(0 if ending else SLOW)
                try:
                    save = state.step % SAVED_EVERY == 0
                    world.commit(samples=BATCH / world.size, save=save)
                except elasticjob.WorldChanged:
                    say(f"step {state.step} {here} {digest(state.live)}")
                    raise
                say(f"step {state.step} {here} {digest(state.live)}")
                if found[:, 0].any():
                    break
    exact = sorted(state.trained) == list(range(SHARDS))
    after = digest(state.live)
    own_live = jax.tree.map(np.asarray, state.live)
    alone = undisturbed(state.initial, state.step)
    pairs = zip(jax.tree.leaves(own_live), jax.tree.leaves(alone), strict=True)
    error = max(float(np.abs(np.asarray(mine - its)).max()) for mine, its in pairs)
    say(f"end: step {state.step} {after} error {error} exact {exact}")
    while (FOLDER / "hold").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
