"""Trains the linear model of `linear_model.py` by the collectives of a framework.

    python linear_training.py jax|tensorflow|pytorch

Trains until FOLDER has a file `finish`. Prints as library_training.py, which does the same by
libraries that have a loop of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import elasticjob
import numpy as np
from linear_model import BATCH, MOMENTUM, RATE, sample  # type: ignore[import-not-found, unused-ignore]

FOLDER = Path(os.environ["FOLDER"])
SAVED_EVERY = 20
Sum = Callable[[np.ndarray], np.ndarray]
Gradient = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Returns the gradient of the sum of squared errors: of two weights, inputs and targets."""


def jax() -> tuple[Sum, Gradient]:
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_enable_x64", True)
    world = elasticjob.world()
    if world.size > 1:
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"],
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
            cluster_detection_method="deactivate",
        )
    assert jax.process_count() == world.size
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    divided = NamedSharding(mesh, P("data"))
    added = jax.jit(
        jax.shard_map(
            lambda rows: jax.lax.psum(rows[0], "data"),
            mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False,
        )
    )  # fmt: skip

    def all_sum(mine: np.ndarray) -> np.ndarray:
        return np.asarray(added(jax.make_array_from_process_local_data(divided, mine[None])))

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jnp.sum((weights[0] * x + weights[1] - y) ** 2)

    def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(jax.grad(loss)(weights, x, y))

    return all_sum, gradient


def tensorflow() -> tuple[Sum, Gradient]:
    import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == elasticjob.world().size

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def added(mine: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(tf.identity, args=(mine,)), axis=None)

    def all_sum(mine: np.ndarray) -> np.ndarray:
        return np.asarray(added(tf.constant(mine)).numpy())

    def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        variable = tf.Variable(weights)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((variable[0] * x + variable[1] - y) ** 2)
        return np.asarray(tape.gradient(loss, variable))

    return all_sum, gradient


def torch() -> tuple[Sum, Gradient]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    assert dist.get_world_size() == elasticjob.world().size

    def all_sum(mine: np.ndarray) -> np.ndarray:
        sums = torch.from_numpy(mine.copy())
        dist.all_reduce(sums)
        return np.asarray(sums)

    def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        parameters = torch.tensor(weights, requires_grad=True)
        errors = parameters[0] * torch.from_numpy(x) + parameters[1] - torch.from_numpy(y)
        (errors**2).sum().backward()
        return np.asarray(parameters.grad)

    return all_sum, gradient


def train(all_sum: Sum, gradient: Gradient) -> None:
    """Train in this world."""
    world = elasticjob.world()

    def any_rank(mine: bool) -> bool:
        return bool(all_sum(np.array([float(mine)]))[0] > 0)

    def show(event: str) -> None:
        if world.rank == 0:
            print(f"round {world.round} size {world.size} {event} {step}", flush=True)

    def save(folder: str) -> None:
        if world.rank == 0:
            state = [step, weights.tolist(), velocity.tolist()]
            Path(folder, "state").write_text(json.dumps(state))

    checkpointer = elasticjob.Checkpointer(FOLDER / "checkpoints", any_rank=any_rank)
    step = 0
    weights = np.zeros(2)
    velocity = np.zeros(2)
    if checkpointer.found:
        step, *state = json.loads(Path(checkpointer.found, "state").read_text())
        weights, velocity = map(np.array, state)
    assert all_sum(np.ones(1))[0] == world.size
    show("from step")
    try:
        while not any_rank((FOLDER / "finish").exists()):
            numbers = range(step * BATCH + world.rank, (step + 1) * BATCH, world.size)
            x, y = np.array([sample(number) for number in numbers]).T
            velocity = MOMENTUM * velocity + all_sum(gradient(weights, x, y)) / BATCH
            weights = weights - RATE * velocity
            step += 1
            if step % 5 == 0:
                show("step")
            checkpointer.step(step, save, due=step % SAVED_EVERY == 0)
    except SystemExit:
        show("stopped after step")
        raise
    checkpointer.finish(step, save)
    if world.rank == 0:
        print(f"end: {step} steps, weights {weights.tolist()}", flush=True)


if __name__ == "__main__":
    train(*{"jax": jax, "tensorflow": tensorflow, "pytorch": torch}[sys.argv[1]]())
    if sys.argv[1] == "pytorch":
        # Otherwise the process may abort at its exit; it then trains again, alone.
        from torch.distributed import destroy_process_group

        destroy_process_group()
