"""Trains hand-written digits with JAX by a number of processes that may change at any step.

What makes it elastic:
- The global batch is constant. Each process trains a part of it, so the result does not depend on
  their number.
- `elasticjob.global_batches` gives each process its part of every batch, from the step of the model
  on. So every image is in the model once an epoch.
- `elasticjob.Checkpointer` saves the model, stops all processes after the same step, and finds the
  checkpoint from which the next world continues.

Without a job it runs as `python train.py`. Environment: EPOCHS, CHECKPOINT_DIR (a folder that all
processes of the job share), STEP_SECONDS (the least time of a step, as of a larger model on a GPU;
default 0).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import elasticjob

# One thread for each process, because the example runs on small machines. JAX reads these when it
# is imported.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import ArrayLike, DTypeLike

TRAINED = 1500  # of the 1,797 images; the rest are test images
BATCH = 125
LAYERS = (64, 512, 512, 10)
LEARNING_RATE = 0.02
MOMENTUM = 0.9
SEED = 1
CHECKPOINT_STEPS = 1000
LOG_STEPS = 50
PREFETCH = 1024  # batches leased in advance, so that training continues without the master


@dataclass
class State:
    """The content of a checkpoint."""

    params: np.ndarray
    velocity: np.ndarray
    step: int


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels from scikit-learn's file; importing it would take a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = np.loadtxt(path, np.float32, delimiter=",")
    # Shuffled, because the last images were written by other people than the first ones.
    table = np.random.default_rng(SEED).permutation(table)
    return table[:, :-1] / 16, table[:, -1].astype(np.int32)


def initial_state() -> State:
    """Return the initial state, the same in every process."""
    rng = np.random.default_rng(SEED)
    layers = [
        (rng.normal(0, (2 / n) ** 0.5, n * m), np.zeros(m)) for n, m in itertools.pairwise(LAYERS)
    ]
    params = np.concatenate([array for layer in layers for array in layer]).astype(np.float32)
    return State(params, np.zeros_like(params), 0)


def restore(folder: str | None) -> State:
    """Read a checkpoint; without one, return the initial state."""
    if folder is None:
        return initial_state()
    with np.load(Path(folder, "state.npz")) as file:
        return State(file["params"], file["velocity"], int(file["step"]))


def forward(params: jax.Array, images: jax.Array) -> jax.Array:
    """Return the logits. The parameters are one vector, so their gradient is one message."""
    start = 0
    for n, m in itertools.pairwise(LAYERS):
        weight = params[start : start + n * m].reshape(n, m)
        bias = params[start + n * m : start + n * m + m]
        if start > 0:
            images = jnp.maximum(images, 0)
        images = images @ weight + bias
        start += n * m + m
    return images


class Processes:
    """The processes of one world, with one device each."""

    def __init__(self) -> None:
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.everywhere = NamedSharding(mesh, P())
        self._divided = NamedSharding(mesh, P("data"))
        self.on_all = partial(jax.shard_map, mesh=mesh, out_specs=P(), check_vma=False)
        self._sum = jax.jit(
            self.on_all(lambda votes: jax.lax.psum(votes[0], "data"), in_specs=P("data"))
        )

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any process."""
        return bool(self._sum(self.part([int(mine)])) > 0)

    def part(self, rows: ArrayLike, kind: DTypeLike = np.float32) -> jax.Array:
        """Return an array that is divided among the processes; `rows` are those of this process."""
        return jax.make_array_from_process_local_data(self._divided, np.asarray(rows, kind))


class Trainer:
    """Trains in one world. Each device has all parameters and a part of the batch."""

    def __init__(self, processes: Processes, state: State) -> None:
        self._processes = processes
        self.params, self.velocity = jax.device_put(
            (state.params, state.velocity), processes.everywhere
        )
        work = processes.on_all(_train_step, in_specs=(P(), P(), *[P("data")] * 3))
        self._step = jax.jit(work, donate_argnums=(0, 1))

    def step(
        self, images: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> tuple[float, int]:
        """Train on this process's part of a batch; return the batch's loss and its images."""
        part = self._processes.part
        batch = (part(images), part(labels, np.int32), part(weights))
        self.params, self.velocity, sums = self._step(self.params, self.velocity, *batch)
        loss, count = np.asarray(sums).tolist()
        return loss, int(count)


def _train_step(
    params: jax.Array,
    velocity: jax.Array,
    images: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def loss_of(params: jax.Array) -> jax.Array:
        chances = jax.nn.log_softmax(forward(params, images))
        return -jnp.sum(weights * jnp.take_along_axis(chances, labels[:, None], axis=1)[:, 0])

    loss, gradient = jax.value_and_grad(loss_of)(params)
    count = jnp.sum(weights > 0, dtype=jnp.float32)
    sums = jax.lax.psum(jnp.concatenate([gradient, loss[None], count[None]]), "data")
    velocity = MOMENTUM * velocity + sums[: len(params)]
    return params - LEARNING_RATE * velocity, velocity, sums[len(params) :]


def padded(
    images: np.ndarray, labels: np.ndarray, indices: Sequence[int], size: int, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images, labels and weights of a part of a batch, as many as of every other part.

    A compiled step needs that. Each image has this weight; that of padding is 0.
    """
    padding = -(-BATCH // size) - len(indices)
    chosen = np.pad(np.array(indices, int), (0, padding))
    weights = np.pad(np.full(len(indices), weight, np.float32), (0, padding))
    return images[chosen], labels[chosen], weights


def train(
    processes: Processes,
    state: State,
    images: np.ndarray,
    labels: np.ndarray,
    checkpointer: elasticjob.Checkpointer,
    epochs: int,
) -> float:
    """Train and return the last loss, or end the process after a stop request."""
    world = elasticjob.world()
    total = epochs * (TRAINED // BATCH)
    batches = elasticjob.global_batches(
        "train",
        size=TRAINED,
        global_batch=BATCH,
        step=state.step,
        epochs=epochs,
        seed=SEED,
        prefetch=PREFETCH,
    )
    trainer = Trainer(processes, state)
    loss = float("nan")
    least_seconds = float(os.environ.get("STEP_SECONDS", "0"))

    def save(folder: str) -> None:
        if world.rank == 0:
            state.params, state.velocity = jax.device_get((trainer.params, trainer.velocity))
            np.savez(Path(folder, "state.npz"), **vars(state))

    while not batches.finished:
        for part in batches:  # the rest of an epoch
            begun = time.monotonic()
            weight = part.scale / len(part.indices) / world.size  # they add up to 1 over the batch
            loss, _ = trainer.step(*padded(images, labels, part.indices, world.size, weight))
            time.sleep(max(0.0, least_seconds - (time.monotonic() - begun)))
            state.step += 1
            if world.rank == 0 and state.step % LOG_STEPS == 0:
                place = f"step {state.step}/{total} round {world.round} size {world.size}"
                print(f"{place} loss {loss:.4f}", flush=True)
            checkpointer.step(
                state.step,
                save,
                due=state.step % CHECKPOINT_STEPS == 0,
                total=total,
                samples=len(part.indices),
                metrics={"loss": loss},
            )
    checkpointer.finish(total, save)
    return loss


def main() -> None:
    """Train the remaining steps."""
    begun = time.monotonic()
    world = elasticjob.world()
    epochs = int(os.environ.get("EPOCHS", "250"))
    with tempfile.TemporaryDirectory() as scratch:
        base = os.environ.get("CHECKPOINT_DIR")
        if base is None and world.round:
            raise SystemExit(
                "CHECKPOINT_DIR must name a folder that all processes of the job share"
            )
        folder = Path(base or scratch, world.job)
        jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        if world.size > 1:
            _join(world)
        processes = Processes()
        checkpointer = elasticjob.Checkpointer(
            folder / "checkpoints", any_rank=processes.any_rank, timeout=5
        )
        state = restore(checkpointer.found)
        total = epochs * (TRAINED // BATCH)
        images, labels = load_digits()
        if world.rank == 0:
            here = f"round {world.round} size {world.size} from step {state.step}"
            print(f"{here}, ready in {time.monotonic() - begun:.2f} s", flush=True)
        try:
            loss = train(processes, state, images, labels, checkpointer, epochs)
        except SystemExit:
            if world.rank == 0:
                print(f"round {world.round} stopped after step {state.step}/{total}", flush=True)
            raise
        if world.rank == 0:
            guessed = np.asarray(forward(state.params, images[TRAINED:])).argmax(axis=1)
            accuracy = float((guessed == labels[TRAINED:]).mean())
            metrics = {"accuracy": accuracy}
            if not np.isnan(loss):
                metrics["loss"] = loss
            elasticjob.report_step(total, total=total, metrics=metrics)
            print(f"finished: {state.step} steps, test accuracy {accuracy:.4f}", flush=True)


def _join(world: elasticjob.World) -> None:
    """Connect to the other processes through rank 0."""
    coordinator = os.environ["JAX_COORDINATOR_ADDRESS"]
    port = coordinator.rpartition(":")[2]
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=world.size,
        process_id=world.rank,
        cluster_detection_method="deactivate",
        # Each pod listens on its own address, because pods of one node may use the same port.
        coordinator_bind_address=f"{world.address}:{port}",
        initialization_timeout=60,
        shutdown_timeout_seconds=10,
    )


if __name__ == "__main__":
    main()
