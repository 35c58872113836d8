"""The training whose pauses are measured: it writes when it has done what, until it is ended.

`python paused_training.py pytorch` (or jax, tensorflow), in the environment of a job. Each process
writes a file in RECORDS: a JSON list [event, seconds since 1970, step] in each line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elasticjob

SIZE = 512  # the square root of the number of parameters
DEVICE_SECONDS = 0.02
"""What a step waits for in addition, as for a device: the CPUs are free for newcomers."""
CHECKPOINT_STEPS = 50


class Record:
    """The file of one process."""

    def __init__(self, rank: int, size: int) -> None:
        """Open it."""
        name = f"{elasticjob.world().round:06}-{rank:03}-{size:03}-{os.getpid()}.jsonl"
        self._file = Path(os.environ["RECORDS"], name).open("a", buffering=1)  # noqa: SIM115

    def write(self, event: str, at: float | None = None, step: int = 0) -> None:
        """Write a line."""
        self._file.write(json.dumps([event, time.time() if at is None else at, step]) + "\n")


class PyTorch:
    """A linear model, trained by DistributedDataParallel."""

    def __init__(self) -> None:
        """Import PyTorch."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        import torch  # type: ignore[import-not-found, unused-ignore]
        import torch.distributed  # type: ignore[import-not-found, unused-ignore]

        self._torch: Any = torch
        self._optimizer: Any = None
        self._model: Any = None

    def join(self) -> tuple[int, int]:
        """Join the process group; return rank and world size."""
        torch = self._torch
        torch.distributed.init_process_group("gloo")
        self._model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(SIZE, SIZE))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        return torch.distributed.get_rank(), torch.distributed.get_world_size()

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""
        flag = self._torch.tensor(int(mine))
        self._torch.distributed.all_reduce(flag, op=self._torch.distributed.ReduceOp.MAX)
        return bool(flag)

    def step(self) -> None:
        """Train one step."""
        loss = self._model(self._torch.ones(8, SIZE)).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def save(self, path: Path) -> None:
        """Write the model."""
        self._torch.save(self._model.module.state_dict(), path)

    def restore(self, path: Path) -> None:
        """Read the model."""
        self._model.module.load_state_dict(self._torch.load(path))


class Jax:
    """The same model, with its gradients summed by JAX."""

    def __init__(self) -> None:
        """Import JAX."""
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
        import jax
        import numpy as np

        self._jax: Any = jax
        self._np: Any = np
        self._parameters: Any = np.zeros((SIZE, SIZE), np.float32)
        self._divided: Any = None
        self._step: Any = None

    def join(self) -> tuple[int, int]:
        """Connect to the other processes; return rank and world size."""
        jax = self._jax
        world = elasticjob.world()
        if world.size > 1:
            jax.distributed.initialize(
                coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
                num_processes=world.size,
                process_id=world.rank,
                cluster_detection_method="deactivate",
            )
        mesh = jax.sharding.Mesh(self._np.array(jax.devices()), ("data",))
        self._divided = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        everywhere = jax.sharding.PartitionSpec()
        self._step = jax.jit(
            jax.shard_map(
                lambda parameters, rows, vote: (
                    parameters - jax.lax.psum(rows.T @ rows, "data"),
                    jax.lax.psum(vote[0], "data"),
                ),
                mesh=mesh,
                in_specs=(everywhere, *[jax.sharding.PartitionSpec("data")] * 2),
                out_specs=everywhere,
                check_vma=False,
            )
        )
        return world.rank, world.size

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""
        return bool(self._run(mine)[1] > 0)

    def step(self) -> None:
        """Train one step."""
        self._parameters = self._run(False)[0]

    def save(self, path: Path) -> None:
        """Write the model."""
        with path.open("wb") as file:
            self._np.save(file, self._np.asarray(self._parameters))

    def restore(self, path: Path) -> None:
        """Read the model."""
        self._parameters = self._np.load(path)

    def _run(self, vote: bool) -> Any:
        rows = self._np.full((8, SIZE), 1e-3, self._np.float32)
        votes = self._np.array([int(vote)], self._np.float32)
        place = self._jax.make_array_from_process_local_data
        return self._step(self._parameters, place(self._divided, rows), place(self._divided, votes))


class TensorFlow:
    """The same model, by MultiWorkerMirroredStrategy."""

    def __init__(self) -> None:
        """Import TensorFlow."""
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import numpy as np
        import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

        self._np: Any = np
        self._tf: Any = tf
        self._strategy: Any = None
        self._parameters: Any = None
        self._sum: Any = None

    def join(self) -> tuple[int, int]:
        """Connect to the other processes; return rank and world size."""
        tf = self._tf
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with self._strategy.scope():
            self._parameters = tf.Variable(tf.zeros((SIZE, SIZE)))
        self._sum = tf.function(self._sum_of)
        world = elasticjob.world()
        return world.rank, world.size

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""
        return bool(self._sum(self._tf.constant(float(mine))) > 0)

    def step(self) -> None:
        """Train one step."""
        rows = self._tf.fill((8, SIZE), 1e-3)
        gradient = self._sum(self._tf.matmul(rows, rows, transpose_a=True))
        self._parameters.assign_sub(gradient)

    def save(self, path: Path) -> None:
        """Write the model."""
        with path.open("wb") as file:
            self._np.save(file, self._parameters.numpy())

    def restore(self, path: Path) -> None:
        """Read the model."""
        self._parameters.assign(self._np.load(path))

    def _sum_of(self, number: Any) -> Any:
        numbers = self._strategy.run(self._tf.identity, args=(number,))
        return self._strategy.reduce("SUM", numbers, axis=None)


FRAMEWORKS: dict[str, Callable[[], PyTorch | Jax | TensorFlow]] = {
    "pytorch": PyTorch,
    "jax": Jax,
    "tensorflow": TensorFlow,
}


def main(framework: str) -> None:
    """Train until the end of the world."""
    began = time.time()
    training = FRAMEWORKS[framework]()
    imported = time.time()
    rank, size = training.join()
    record = Record(rank, size)
    record.write("began", began)
    record.write("imported", imported)
    record.write("joined")
    checkpointer = elasticjob.Checkpointer(
        os.environ["CHECKPOINTS"], any_rank=training.any_rank if size > 1 else None
    )
    step = 0
    if checkpointer.found:
        training.restore(Path(checkpointer.found, "model"))
        step = int(Path(checkpointer.found, "step").read_text())
    record.write("restored")

    def save(folder: str) -> None:
        if rank == 0:
            training.save(Path(folder, "model"))
            Path(folder, "step").write_text(str(step))

    while True:
        training.step()
        time.sleep(DEVICE_SECONDS)
        step += 1
        record.write("step", step=step)
        checkpointer.step(step, save, due=step % CHECKPOINT_STEPS == 0)


if __name__ == "__main__":
    main(sys.argv[1])
