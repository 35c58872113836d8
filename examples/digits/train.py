"""Hand-written digits, trained data-parallel with JAX by any number of processes that may change at any step.

What makes it elastic:
- The global batch is constant: each process takes its part of it, so the training does not depend on their number.
- A shard is one global batch, leased by rank 0. Every step has one collective; besides the gradient it has the values
  that all processes must agree on before the next step: its shard, and whether to stop.
- A checkpoint lists its shards. They are reported as done only after it is written, so a shard's effect is never lost.

Alone it runs as `python train.py`. Environment: EPOCHS, CHECKPOINT_DIR (needed in a job: a folder all processes share).
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import elasticjob

# One thread a process: the example shares small machines. Has to be set before JAX is loaded.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import ArrayLike, DTypeLike

TRAINED = 1500  # of the 1,797 images; the rest tests
BATCH = 125
LAYERS = (64, 512, 512, 10)
LEARNING_RATE, MOMENTUM = 0.02, 0.9
SEED = 1
CHECKPOINT_STEPS = 200
LOG_STEPS = 50
PREFETCH = 1024  # shards: training continues for at least half as many steps while the master is unavailable


@dataclass
class State:
    """The content of a checkpoint: parameters, momentum, and the shards they contain. One shard is one step."""

    params: np.ndarray
    velocity: np.ndarray
    shards: set[int]

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return len(self.shards)


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, from scikit-learn's file but without loading scikit-learn: that takes a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with gzip.open(path, "rt") as file:
        table = np.array([line.split(",") for line in file], dtype=np.float32)
    table = np.random.default_rng(SEED).permutation(table)  # the writers of the last ones differ from the first ones
    return table[:, :-1] / 16, table[:, -1].astype(np.int32)


def fresh_state() -> State:
    """Return the state before the first step, the same in every process."""
    rng = np.random.default_rng(SEED)
    layers = [(rng.normal(0, (2 / n) ** 0.5, n * m), np.zeros(m)) for n, m in itertools.pairwise(LAYERS)]
    params = np.concatenate([array for layer in layers for array in layer]).astype(np.float32)
    return State(params, np.zeros_like(params), set())


def save(folder: Path, state: State) -> bool:
    """Write the checkpoint atomically; returns whether it may be: if the others do not train without this process."""
    part = folder / f".checkpoint-{elasticjob.world().round}-{os.getpid()}.part"
    with part.open("wb") as file:
        np.savez(file, params=state.params, velocity=state.velocity, shards=np.array(sorted(state.shards)))
        file.flush()
        os.fsync(file.fileno())
    if not elasticjob.may_commit():
        part.unlink()
        return False
    part.replace(folder / "checkpoint.npz")
    return True


def restore(folder: Path) -> State:
    """Read the checkpoint, if there is one."""
    path = folder / "checkpoint.npz"
    if not path.exists():
        return fresh_state()
    with np.load(path) as file:
        return State(file["params"], file["velocity"], set(file["shards"].tolist()))


def forward(params: jax.Array, images: jax.Array) -> jax.Array:
    """Return the logits. The parameters are one vector, so that their gradient is one message."""
    start = 0
    for n, m in itertools.pairwise(LAYERS):
        weight, bias = params[start : start + n * m].reshape(n, m), params[start + n * m : start + n * m + m]
        images = (images if start == 0 else jnp.maximum(images, 0)) @ weight + bias
        start += n * m + m
    return images


class Trainer:
    """The computation of one world: one device of each process, parameters on all, the batch divided among them.

    `votes` are numbers that each process contributes; all processes get their sums.
    """

    def __init__(self, state: State) -> None:
        mesh = Mesh(np.array(jax.devices()), ("data",))
        everywhere, self._divided = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
        self.params, self.velocity = jax.device_put((state.params, state.velocity), everywhere)

        on_all = partial(jax.shard_map, mesh=mesh, out_specs=P(), check_vma=False)
        self._step = jax.jit(on_all(_train_step, in_specs=(P(), P(), *[P("data")] * 4)), donate_argnums=(0, 1))
        self._agree = jax.jit(on_all(lambda votes: jax.lax.psum(votes[0], "data"), in_specs=P("data")))

    def agree(self, *votes: int) -> list[int]:
        """Return the sums of all processes' votes."""
        sums: list[int] = np.asarray(self._agree(self._part([votes]))).astype(int).tolist()
        return sums

    def step(self, images: np.ndarray, labels: np.ndarray, weights: np.ndarray, *votes: int) -> tuple[float, list[int]]:
        """Train on this process's part of the batch; returns the loss of the whole batch, and the sums of the votes."""
        batch = (self._part(images), self._part(labels, np.int32), self._part(weights), self._part([votes]))
        self.params, self.velocity, sums = self._step(self.params, self.velocity, *batch)
        loss, *agreed = np.asarray(sums).tolist()
        return loss, [int(vote) for vote in agreed]

    def _part(self, rows: ArrayLike, kind: DTypeLike = np.float32) -> jax.Array:
        return jax.make_array_from_process_local_data(self._divided, np.asarray(rows, kind))


def _train_step(
    params: jax.Array, velocity: jax.Array, images: jax.Array, labels: jax.Array, weights: jax.Array, votes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def loss_of(params: jax.Array) -> jax.Array:
        chances = jax.nn.log_softmax(forward(params, images))
        return -jnp.sum(weights * jnp.take_along_axis(chances, labels[:, None], axis=1)[:, 0])

    loss, gradient = jax.value_and_grad(loss_of)(params)
    sums = jax.lax.psum(jnp.concatenate([gradient, loss[None], votes[0]]), "data")
    velocity = MOMENTUM * velocity + sums[: len(params)]
    return params - LEARNING_RATE * velocity, velocity, sums[len(params) :]


class Batches:
    """Gives each process its part of a shard. The part's size is the same for all, as a compiled step needs it."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, world: elasticjob.World) -> None:
        self._images, self._labels, self._world = images, labels, world
        self._per_epoch = -(-len(images) // BATCH)
        self._epoch, self._order = -1, np.arange(0)

    def part(self, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return images, labels and weights; the weights of padding are 0, all others sum up to 1 over the batch."""
        epoch, position = divmod(shard, self._per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng((SEED, epoch)).permutation(len(self._images))
        batch = self._order[position * BATCH : (position + 1) * BATCH]
        mine = batch[self._world.rank :: self._world.size]
        padding = -(-BATCH // self._world.size) - len(mine)
        chosen = np.pad(mine, (0, padding))
        weights = np.pad(np.full(len(mine), 1 / len(batch), np.float32), (0, padding))
        return self._images[chosen], self._labels[chosen], weights


class ShardLeases:
    """Rank 0's part in leasing shards: leases them ahead, and reports them as done once a checkpoint contains them."""

    def __init__(self, images: int, epochs: int, trained: set[int]) -> None:
        self._shards = elasticjob.shards(
            "train", size=images, shard_size=BATCH, epochs=epochs, shuffle=True, seed=SEED, prefetch=PREFETCH
        )
        self._trained = trained
        self._unsaved: dict[int, elasticjob.Shard] = {}

    def next(self) -> int | None:
        """Return a shard that has not been trained; None if there is none now."""
        while (shard := self._shards.take(timeout=0.05)) is not None:
            if shard.id not in self._trained:
                self._unsaved[shard.id] = shard
                return shard.id
            self._shards.done(shard)  # a checkpoint has it, but the process ended before it was reported
        if self._shards.finished:
            raise SystemExit("the shards are all done but the checkpoint does not contain them: was it deleted?")
        return None

    def saved(self) -> None:
        """Report the shards that the last checkpoint contains as done."""
        trained = [shard for number, shard in self._unsaved.items() if number in self._trained]
        self._unsaved = {n: shard for n, shard in self._unsaved.items() if n not in self._trained}
        self._shards.done(*trained)

    def flush(self) -> None:
        """Wait briefly for the reports to arrive; without them the next world skips the shards by the checkpoint."""
        self._shards.flush(timeout=2)


def train(state: State, batches: Batches, leases: ShardLeases | None, total: int, folder: Path) -> tuple[bool, float]:
    """Train until the end or until all have agreed to stop; returns whether it is the end, and the last loss."""
    world, trainer, loss = elasticjob.world(), Trainer(state), float("nan")

    def checkpoint() -> None:
        if leases is not None:
            state.params, state.velocity = jax.device_get((trainer.params, trainer.velocity))
            while not save(folder, state):
                if state.step < total:
                    return  # a later one will do
                time.sleep(1)
            leases.saved()

    def votes(step: int) -> tuple[int, int]:
        """Return this process's votes on the next step: whether to stop, and the shard, counted from 1."""
        shard = leases.next() if leases is not None and step < total else None
        return elasticjob.should_stop(), 0 if shard is None else shard + 1

    if trainer.agree(state.step) != [state.step * world.size]:
        raise SystemExit(f"rank {world.rank} found step {state.step}, others another one: is {folder} shared by all?")
    stop, shard = trainer.agree(*votes(state.step))
    while state.step < total:
        if stop:
            checkpoint()
            return False, loss
        if not shard:
            stop, shard = trainer.agree(*votes(state.step))
            continue
        part = batches.part(shard - 1)
        state.shards.add(shard - 1)
        loss, (stop, shard) = trainer.step(*part, *votes(state.step))
        metrics = {"loss": loss} if world.rank == 0 else None
        elasticjob.report_step(state.step, total=total, samples=int((part[2] > 0).sum()), metrics=metrics)
        if world.rank == 0 and state.step % LOG_STEPS == 0:
            print(f"step {state.step}/{total} round {world.round} size {world.size} loss {loss:.4f}", flush=True)
        if state.step % CHECKPOINT_STEPS == 0:
            checkpoint()
    checkpoint()
    return True, loss


def main() -> None:
    """Train the remaining steps."""
    begun = time.monotonic()
    world, epochs = elasticjob.world(), int(os.environ.get("EPOCHS", "250"))
    with tempfile.TemporaryDirectory() as scratch:
        base = os.environ.get("CHECKPOINT_DIR")
        if base is None and world.round:
            raise SystemExit("CHECKPOINT_DIR is not set: name a folder that all processes of the job share")
        folder = Path(base or scratch, world.job)
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        if world.size > 1:
            _join(world)
        images, labels = load_digits()
        state = restore(folder)
        total = epochs * -(-TRAINED // BATCH)
        leases = ShardLeases(TRAINED, epochs, state.shards) if world.rank == 0 else None
        batches = Batches(images[:TRAINED], labels[:TRAINED], world)
        if leases is not None:
            seconds = time.monotonic() - begun
            print(f"round {world.round} size {world.size} from step {state.step}, ready in {seconds:.2f} s", flush=True)
        finished, loss = train(state, batches, leases, total, folder)
        if leases is not None:
            leases.flush()
            if finished:
                guessed = np.asarray(forward(state.params, images[TRAINED:])).argmax(axis=1)
                accuracy = float((guessed == labels[TRAINED:]).mean())
                known = {} if np.isnan(loss) else {"loss": loss}
                elasticjob.report_step(total, total=total, metrics={**known, "accuracy": accuracy})
                print(f"finished: {state.step} steps, test accuracy {accuracy:.4f}", flush=True)
            else:
                print(f"round {world.round} stopped after step {state.step}/{total}", flush=True)
        if not finished:
            elasticjob.confirm_stop()
        if world.size > 1:
            jax.distributed.shutdown()


def _join(world: elasticjob.World) -> None:
    """Connect to the other processes through rank 0. JAX reads only the coordinator's address from the environment."""
    coordinator = os.environ["JAX_COORDINATOR_ADDRESS"]
    port = coordinator.rpartition(":")[2]
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=world.size,
        process_id=world.rank,
        cluster_detection_method="deactivate",
        coordinator_bind_address=f"{world.address}:{port}",  # pods of one machine have this port each
        initialization_timeout=60,
        shutdown_timeout_seconds=10,
    )


if __name__ == "__main__":
    main()
