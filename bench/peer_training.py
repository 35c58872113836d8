"""Trains one toy model in four ways that survive the loss of a process, for beside_peers.py.

`python peer_training.py WAY`. Each process writes a file in RECORDS, named after MEMBER: a JSON
list [seconds since 1970, step, size of its world] for each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch import nn

DEVICE_SECONDS = 0.02
"""What a step waits for, as for a device: the CPUs are free for newcomers."""
CHECKPOINT_STEPS = 50
_BATCH = 128
_FOLDER = Path(os.environ["RECORDS"])


class Training:
    """The model, and the record of its steps."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)
        name = f"{os.environ['MEMBER']}-{os.getpid()}.jsonl"
        self._record = (_FOLDER / name).open("a", buffering=1)

    def backward(self, model: Any, step: int, rank: int, size: int) -> None:
        """Compute the gradients of this rank's part of a batch."""
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(_BATCH, 64, generator=generator)[rank::size]
        labels = torch.randint(0, 10, (_BATCH,), generator=generator)[rank::size]
        time.sleep(DEVICE_SECONDS)
        nn.functional.cross_entropy(model(inputs), labels).backward()

    def train(self, model: Any, step: int, rank: int, size: int) -> None:
        """Train one step, which `step` have preceded."""
        self.optimizer.zero_grad()
        self.backward(model, step, rank, size)
        self.optimizer.step()

    def finished(self, step: int, size: int) -> None:
        """Record the end of a step."""
        self._record.write(json.dumps([time.time(), step, size]) + "\n")

    def state(self) -> dict[str, Any]:
        """Return model and optimizer."""
        return {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue with another state."""
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def restart() -> None:
    """Train in processes that start again in each world, from the last checkpoint."""
    import elasticjob

    training = Training()
    dist.init_process_group("gloo")
    checkpointer = elasticjob.Checkpointer(_FOLDER / "checkpoints")
    step = 0
    if checkpointer.found:
        stored = torch.load(Path(checkpointer.found, "state"))
        training.load(stored)
        step = stored["step"]
    model = nn.parallel.DistributedDataParallel(training.network)

    def save(folder: str) -> None:
        torch.save({**training.state(), "step": step}, Path(folder, "state"))

    while True:
        training.train(model, step, dist.get_rank(), dist.get_world_size())
        step += 1
        training.finished(step, dist.get_world_size())
        checkpointer.step(step, save, due=step % CHECKPOINT_STEPS == 0)


def worlds() -> None:
    """Train in processes that continue from world to world."""
    import elasticjob.torch

    training = Training()
    state = elasticjob.torch.State(model=training.network, optimizer=training.optimizer)
    for world in elasticjob.torch.worlds(state):
        with world:
            model = nn.parallel.DistributedDataParallel(training.network)
            while True:
                training.train(model, state.step, world.rank, world.size)
                state.step += 1
                training.finished(state.step, world.size)
                world.commit()


def torchrun() -> None:
    """Train in processes that torchrun starts again in each world, from the last checkpoint."""
    training = Training()
    dist.init_process_group("gloo")
    file = _FOLDER / "state"
    step = 0
    if file.exists():
        stored = torch.load(file)
        training.load(stored)
        step = stored["step"]
    model = nn.parallel.DistributedDataParallel(training.network)
    while True:
        training.train(model, step, dist.get_rank(), dist.get_world_size())
        step += 1
        training.finished(step, dist.get_world_size())
        if step % CHECKPOINT_STEPS == 0 and dist.get_rank() == 0:
            torch.save({**training.state(), "step": step}, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)


def torchft() -> None:
    """Train in a replica group of one process."""
    from torchft import Manager, Optimizer, ProcessGroupGloo  # type: ignore[import-not-found, unused-ignore]
    from torchft.ddp import PureDistributedDataParallel  # type: ignore[import-not-found, unused-ignore]

    training = Training()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=1,
        load_state_dict=training.load,
        state_dict=training.state,
        replica_id=f"{os.environ['MEMBER']}_",
        timeout=timedelta(seconds=10),
    )
    # DistributedDataParallel of torchft 0.2.0 does not survive the loss of a replica on CPUs.
    model = PureDistributedDataParallel(manager, training.network)
    optimizer = Optimizer(manager, training.optimizer)
    while True:
        step = manager.current_step()
        rank = manager.participating_rank() or 0
        size = max(1, manager.num_participants()) if step else 1
        optimizer.zero_grad()
        training.backward(model, step, rank if step else 0, size)
        optimizer.step()
        training.finished(manager.current_step(), manager.num_participants())


WAYS: dict[str, Callable[[], None]] = {
    "restart": restart,
    "worlds": worlds,
    "torchrun": torchrun,
    "torchft": torchft,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
