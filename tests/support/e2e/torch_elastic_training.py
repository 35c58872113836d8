"""Trains with PyTorch and torchruns that rendezvous in etcd, as TorchElastic's did, without our
agent and library.

Runs as `torch_elastic_training.py FOLDER --task=N`, until a file `finish` exists in the folder. A
step is a sum over all processes. The first process keeps the number of steps in the file `step`,
from which the next world continues. Each process appends a line `TASK SIZE FIRST` to `worlds` when
it has done a step, and `TASK end LAST` at its end.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STEP_SECONDS = 0.05
TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """Train in the world that torchrun has formed."""
    folder = Path(sys.argv[1])
    task = sys.argv[2].removeprefix("--task=")
    dist.init_process_group("gloo", timeout=TIMEOUT)
    kept = folder / "step"
    begin = torch.tensor([0])
    if dist.get_rank() == 0 and kept.exists():
        begin = torch.tensor([int(kept.read_text())])
    dist.broadcast(begin, 0)
    first = step = int(begin)
    finish = torch.zeros(1)
    while not finish.any():
        finish.fill_((folder / "finish").exists())
        dist.all_reduce(finish)  # all end after the same step
        step += 1
        if dist.get_rank() == 0:
            part = folder / "step.part"
            part.write_text(str(step))
            part.replace(kept)
        if step == first + 1:
            note(folder, task, str(dist.get_world_size()), first)
        time.sleep(STEP_SECONDS)
    note(folder, task, "end", step)
    dist.destroy_process_group()


def note(folder: Path, task: str, what: str, step: int) -> None:
    """Append a line to `worlds`."""
    with (folder / "worlds").open("a") as file:
        file.write(f"{task} {what} {step}\n")


if __name__ == "__main__":
    main()
