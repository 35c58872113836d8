"""Trains with FSDP2 of the real PyTorch in processes that continue from world to world.

The parts of the model are uneven, some are empty, and one parameter is replicated. Each rank prints
a digest of the whole state (model and moments), gathered from all ranks: before each commit, after
it, and at the beginning of each world. If the folder FOLDER has a file `finish`, the training ends.

Environment: SLOW (seconds of a step), PAD (numbers of a further parameter), SAVED_EVERY (steps
between two checkpoints), DIE_AT (a rank and a step, such as 1:20: it is killed in that commit,
before the ranks agree that all have their copies), DIE_SECONDS (after which it is killed while it
sends its part instead), HYBRID (1: two replicas of the parts, if the number of ranks is even),
SHARDS (of the data set).
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import elasticjob.torch
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from elasticjob._torch_group import Meetings
from torch import nn
from torch.distributed.device_mesh import (  # type: ignore[import-not-found, unused-ignore]
    init_device_mesh,
)
from torch.distributed.fsdp import fully_shard  # type: ignore[import-not-found, unused-ignore]
from torch.distributed.tensor import DTensor  # type: ignore[import-not-found, unused-ignore]

FOLDER = Path(os.environ["FOLDER"])
SLOW = float(os.environ.get("SLOW", "0.05"))
PAD = int(os.environ.get("PAD") or 0)
SAVED_EVERY = int(os.environ.get("SAVED_EVERY") or 10**9)
SHARDS = int(os.environ.get("SHARDS") or 1500)
HYBRID = os.environ.get("HYBRID") == "1"
BATCH = 16
WIDTH = 13
TRAINED = 20
"""Shards that a rank takes in one step of the ending training."""


class Network(nn.Module):  # type: ignore[misc, unused-ignore]
    """A network of which no layer can be divided evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
        self.scale = nn.Parameter(torch.ones(1))
        if PAD:
            self.pad = nn.Parameter(torch.zeros(PAD, dtype=torch.float32))
        self.double()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("coarse", torch.zeros(3, dtype=torch.bfloat16))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the predictions."""
        return self.layers(inputs) * self.scale + (self.pad.sum() if PAD else 0)


def build(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model that is divided among the ranks of the present world, and its optimizer."""
    torch.manual_seed(1)
    network = Network()
    if mesh is not None:
        if HYBRID and mesh.size() % 2 == 0:
            here = elasticjob.world()
            names = (f"replicas{here.round}", f"parts{here.round}")
            mesh = init_device_mesh("cpu", (2, here.size // 2), mesh_dim_names=names)
        for layer in network.layers:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh, ignored_params={network.scale})
    return network, torch.optim.AdamW(network.parameters(), lr=0.01)


def say(text: str) -> None:
    """Print a line in one piece, with the time and this process."""
    os.write(1, f"\n{time.time():.3f} {os.getpid()} {text}\n".encode())


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the parts of all ranks."""
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the whole state."""
    for _, tensor in sorted(model.state_dict().items()):
        yield whole(tensor)
    for _, moments in sorted(optimizer.state_dict()["state"].items()):
        for _, tensor in sorted(moments.items()):
            yield whole(tensor)


def digest(state: Any) -> str:
    """Return a digest of the bits of the whole state. All ranks call it."""
    found = hashlib.sha256()
    for tensor in tensors(state.model, state.optimizer):
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of one step, the same in all ranks."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randint(-8, 9, (BATCH, 8), generator=generator).double() / 8
    return inputs, torch.stack([inputs.sum(1), inputs.prod(1)], 1)


def train(model: Any, optimizer: Any, step: int, rank: int, size: int) -> None:
    """Train this rank's part of a batch."""
    inputs, targets = batch_of(step)
    mine = slice(rank, None, size)
    loss = ((model(inputs[mine]) - targets[mine]) ** 2).sum() * size / BATCH  # FSDP averages
    loss.backward()
    if size > 1:
        dist.all_reduce(model.scale.grad)
        model.scale.grad /= size
    optimizer.step()
    optimizer.zero_grad()
    model.seen += 1
    model.coarse += 0.5


def undisturbed(steps: int) -> list[torch.Tensor]:
    """Return the parameters that one process alone has after these steps."""
    model, optimizer = build(None)
    for step in range(steps):
        train(model, optimizer, step, 0, 1)
    return [parameter.detach() for parameter in model.parameters()]


def die_in_commit(rank: int, step: int) -> None:
    """Let this process be killed in a commit: its part is copied, but the ranks do not agree."""
    if os.environ.get("DIE_AT") != f"{rank}:{step}" or (FOLDER / "died").exists():
        return
    (FOLDER / "died").touch()
    if "DIE_SECONDS" in os.environ:
        kill = (os.getpid(), signal.SIGKILL)
        threading.Timer(float(os.environ["DIE_SECONDS"]), os.kill, kill).start()
        return

    def die(self: Meetings, mine: bool) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return mine

    Meetings.any_rank = die  # type: ignore[method-assign]


def main() -> None:
    """Train."""
    state = elasticjob.torch.ShardedState(build, trained=[])
    shards = state.open(elasticjob.shards, "samples", size=SHARDS, shard_size=1, prefetch=4)
    say("ready")
    for world in elasticjob.torch.worlds(state, folder=FOLDER / "checkpoints"):
        with world:
            here = f"rank {world.rank} of {world.size} round {world.round}"
            say(f"world: {here} step {state.step} {digest(state)}")
            while True:
                ending = (FOLDER / "finish").exists()
                taken: list[elasticjob.Shard] = []
                while len(taken) < (TRAINED if ending else 1) and (
                    shard := shards.take(timeout=0.2)
                ):
                    taken.append(shard)
                train(state.model, state.optimizer, state.step, world.rank, world.size)
                own = [shard.start for shard in taken] + [-1] * (TRAINED - len(taken))
                numbers = [torch.zeros(TRAINED, dtype=torch.long) for _ in range(world.size)]
                dist.all_gather(numbers, torch.tensor(own))
                state.trained += [number for number in torch.cat(numbers).tolist() if number >= 0]
                ends = torch.tensor(int(ending and shards.finished))
                dist.all_reduce(ends, op=dist.ReduceOp.MAX)
                shards.done(*taken)
                state.step += 1
                time.sleep(0 if ending else SLOW)
                committed = digest(state)
                say(f"state {state.step} {committed}")
                die_in_commit(world.rank, state.step)
                try:
                    world.commit(save=state.step % SAVED_EVERY == 0)
                except elasticjob.WorldChanged:
                    say(f"step {state.step} {here} {committed}")
                    raise
                say(f"step {state.step} {here} {committed}")
                if ends:
                    break
            parameters = [whole(parameter) for parameter in state.model.parameters()]
            last = digest(state)
    exact = sorted(state.trained) == list(range(SHARDS))
    pairs = zip(parameters, undisturbed(state.step), strict=True)
    error = max(float((mine - its).abs().max()) for mine, its in pairs)
    say(f"end: step {state.step} {last} error {error} exact {exact}")


if __name__ == "__main__":
    main()
