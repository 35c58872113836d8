"""Trains with the real PyTorch in processes that continue from world to world.

Each step trains a batch that depends on the step alone, of which each rank takes a part, and a
shard of a data set. If the folder FOLDER has a file `finish`, each rank takes several shards in a
step, and the training ends with the data set.
Each rank prints a digest of the parameters after each commit. At its end it prints the difference
from an undisturbed training, and whether each sample is in the model once. A process with a file
`fail-PID` fails, and one with `cut-PID` loses its connections to the others.

Environment: DDP (1: with DistributedDataParallel), SLOW (seconds of a step), PAD (numbers that each
step reduces in addition, so that a process is killed in the middle of an all-reduce), ERROR_SECONDS
(that the last rank waits for another world after an error), FAILED_ATTEMPT (1: the process has
failed to form a group before), SAVED_EVERY (steps between two checkpoints).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import elasticjob._world_session
import elasticjob.torch
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from elasticjob import Shard
from elasticjob._committed_state import CommittedShards

FOLDER = Path(os.environ["FOLDER"])
DDP = os.environ.get("DDP") == "1"
SLOW = float(os.environ.get("SLOW", "0.05"))
PAD = int(os.environ.get("PAD") or 0)
elasticjob._world_session._ERROR_SECONDS = float(os.environ.get("ERROR_SECONDS", "120"))
BATCH = 16
SHARDS = int(os.environ.get("SHARDS") or 1500)
SAVED_EVERY = int(os.environ.get("SAVED_EVERY") or 10**9)
LAST_SHARDS = 20
"""The shards that a rank takes in one step of the ending training."""


def say(text: str) -> None:
    """Print a line in one piece, with the time and this process."""
    os.write(1, f"\n{time.time():.3f} {os.getpid()} {text}\n".encode())


def digest(network: torch.nn.Module) -> str:
    """Return a digest of all parameters' bits."""
    found = hashlib.sha256()
    for parameter in network.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of one step, the same in all ranks."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randint(-8, 9, (BATCH, 8), generator=generator) / 8
    return inputs.double(), inputs.double().sum(1, keepdim=True)


def training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a network and its optimizer."""
    network = torch.nn.Linear(8, 1).double()
    return network, torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)


def undisturbed(initial: dict[str, torch.Tensor], steps: int) -> torch.nn.Module:
    """Return the network that one process alone has after these steps."""
    network, optimizer = training()
    network.load_state_dict(initial)
    for step in range(steps):
        inputs, targets = batch_of(step)
        optimizer.zero_grad()
        (((network(inputs) - targets) ** 2).sum() / BATCH).backward()
        optimizer.step()
    return network


def take(shards: CommittedShards[Shard], most: int) -> list[Shard]:
    """Take shards; fewer if there are no more of them now."""
    taken: list[Shard] = []
    while len(taken) < most and (shard := shards.take(timeout=0.2)):
        taken.append(shard)
    return taken


def fail_to_form_a_group() -> None:
    """Try to form a group whose other process does not come."""
    with contextlib.suppress(RuntimeError):
        dist.init_process_group(
            "gloo", store=dist.HashStore(), rank=0, world_size=2, timeout=timedelta(seconds=1)
        )
    assert not dist.is_initialized()


def main() -> None:
    """Train."""
    torch.manual_seed(os.getpid())  # the processes differ, until they share the state
    network, optimizer = training()
    initial = {name: value.clone() for name, value in network.state_dict().items()}
    state = elasticjob.torch.State(model=network, optimizer=optimizer, trained=[], initial=initial)
    shards = state.open(elasticjob.shards, "samples", size=SHARDS, shard_size=1, prefetch=4)
    if os.environ.get("FAILED_ATTEMPT") == "1":
        fail_to_form_a_group()
    say("ready")
    for world in elasticjob.torch.worlds(state, folder=FOLDER / "checkpoints"):
        with world:
            here = f"rank {world.rank} of {world.size} round {world.round}"
            say(f"world: {here} step {state.step} {digest(network)}")
            model = torch.nn.parallel.DistributedDataParallel(network) if DDP else network
            while True:
                inputs, targets = batch_of(state.step)
                mine = slice(world.rank, None, world.size)
                if (FOLDER / f"fail-{os.getpid()}").exists():
                    raise RuntimeError("an error of the program")
                cut = FOLDER / f"cut-{os.getpid()}"
                if cut.exists():
                    cut.unlink()
                    meeting = world._session._meeting
                    assert meeting is not None
                    meeting.connections.cut()
                ending = (FOLDER / "finish").exists()
                taken = take(shards, LAST_SHARDS if ending else 1)
                loss = ((model(inputs[mine]) - targets[mine]) ** 2).sum() / BATCH
                (loss * (world.size if DDP else 1)).backward()
                if PAD:
                    dist.all_reduce(torch.ones(PAD))
                if not DDP:
                    for parameter in network.parameters():
                        dist.all_reduce(parameter.grad)
                optimizer.step()
                optimizer.zero_grad()
                ends = torch.tensor(int(ending and shards.finished))
                own = [shard.start for shard in taken] + [-1] * (LAST_SHARDS - len(taken))
                numbers = [torch.zeros(LAST_SHARDS, dtype=torch.long) for _ in range(world.size)]
                dist.all_gather(numbers, torch.tensor(own))
                dist.all_reduce(ends, op=dist.ReduceOp.MAX)
                state.trained += [number for number in torch.cat(numbers).tolist() if number >= 0]
                shards.done(*taken)
                state.step += 1
                time.sleep(0 if ending else SLOW)
                try:
                    save = state.step % SAVED_EVERY == 0
                    world.commit(samples=BATCH / world.size, save=save)
                except elasticjob.WorldChanged:
                    say(f"step {state.step} {here} {digest(network)}")
                    raise
                say(f"step {state.step} {here} {digest(network)}")
                if ends:
                    break
    exact = sorted(state.trained) == list(range(SHARDS))
    alone = undisturbed(state.initial, state.step)
    pairs = zip(network.parameters(), alone.parameters(), strict=True)
    error = max(float((mine - its).abs().max()) for mine, its in pairs)
    say(f"end: step {state.step} {digest(network)} error {error} exact {exact}")
    while (FOLDER / "hold").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
