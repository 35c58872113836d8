"""Trains hand-written digits with DistributedDataParallel by a changing number of processes.

What makes it elastic:
- The global batch is constant. Each rank trains a part of it, so the result does not depend on the
  number of ranks.
- `elasticjob.Checkpointer` stops all ranks after the same step, saves, and finds the checkpoint
  from which the next world continues.

Runs as `python train.py`, once for each process, or as `torchrun train.py`. Environment: EPOCHS,
CHECKPOINT_DIR (a folder that all processes of the job share), DIGITS (the file of the digits, if
scikit-learn is not installed).
"""

from __future__ import annotations

import gc
import gzip
import importlib.util
import os
from pathlib import Path
from typing import Any

import elasticjob

# One thread for each process, because the example runs on small machines. torch reads it when it is
# imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch import nn

TRAINED = 1500  # of the 1,797 images; the rest are test images
BATCH = 125
SEED = 1
CHECKPOINT_STEPS = 100
LOG_STEPS = 25


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Read images and labels from scikit-learn's file, without importing scikit-learn."""
    path = os.environ.get("DIGITS")
    if path is None:
        package = importlib.util.find_spec("sklearn")
        if package is None or not package.submodule_search_locations:
            raise SystemExit("the digits come with scikit-learn: pip install scikit-learn")
        path = str(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz"))
    with gzip.open(path, "rt") as file:
        table = torch.tensor([[float(number) for number in line.split(",")] for line in file])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(SEED))]
    return table[:, :-1] / 16, table[:, -1].long()


def batch_of(step: int) -> torch.Tensor:
    """Return the images of one step, the same in all ranks. Each epoch has another order."""
    per_epoch = TRAINED // BATCH
    epoch, position = divmod(step, per_epoch)
    order = torch.randperm(TRAINED, generator=torch.Generator().manual_seed(SEED + epoch))
    return order[position * BATCH : (position + 1) * BATCH]


def any_rank(mine: bool) -> bool:
    """Return whether it is true in any rank."""
    device = "cuda" if torch.cuda.is_available() else "cpu"  # NCCL needs it on the GPU
    flag = torch.tensor(int(mine), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


class Training:
    """The state of the training, which checkpoints contain, and its steps."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(SEED)
        network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
        self.model = self.distributed(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0
        self.samples = 0  # of all ranks
        self._device = device
        images, labels = load_digits()
        self._images = images.to(device)
        self._labels = labels.to(device)

    def distributed(self, network: nn.Module) -> nn.Module:
        """Return the model as all ranks train it together."""
        return nn.parallel.DistributedDataParallel(network)

    def place(self) -> str:
        """Return what the log says about the state. All ranks call it."""
        return f"step {self.step}"

    def restore(self, folder: str) -> None:
        """Continue from a checkpoint."""
        saved: dict[str, Any] = torch.load(Path(folder, "state.pt"), map_location=self._device)
        self.model.module.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]
        self.samples = saved["samples"]

    def save(self, folder: str) -> None:
        """Write a checkpoint, in rank 0."""
        if dist.get_rank() == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "samples": self.samples,
            }
            torch.save(state, Path(folder, "state.pt"))

    def train_step(self) -> tuple[float, int]:
        """Train on this rank's part of a batch; return the batch's loss and the part's size."""
        rank = dist.get_rank()
        size = dist.get_world_size()
        mine = batch_of(self.step)[rank::size]
        # DDP averages over the ranks, whose parts may differ by one image. The factor size / BATCH
        # turns this into the average over the images.
        loss = nn.functional.cross_entropy(
            self.model(self._images[mine]), self._labels[mine], reduction="sum"
        )
        self.optimizer.zero_grad()
        (loss * size / BATCH).backward()
        self.optimizer.step()
        sums = torch.tensor([float(loss.detach()), len(mine)], device=self._device)
        dist.all_reduce(sums)
        self.step += 1
        self.samples += int(sums[1])
        return float(sums[0]) / BATCH, len(mine)

    def accuracy(self) -> float:
        """Return the share of the test images that are recognized. All ranks call it."""
        with torch.no_grad():
            guessed = self.model(self._images[TRAINED:]).argmax(dim=1)
        return float((guessed == self._labels[TRAINED:]).float().mean())


def main(new_training: type[Training] = Training) -> None:
    """Connect to the other processes, train, and disconnect."""
    gpus = torch.cuda.device_count()
    dist.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cpu")
    if gpus:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    train(new_training(device))
    # The model must be destroyed before the group, or the process may hang or crash at its end.
    gc.collect()
    dist.destroy_process_group()


def train(training: Training) -> None:
    """Train the remaining steps, or until a stop is requested."""
    world = elasticjob.world()
    first = dist.get_rank() == 0
    here = f"round {world.round} size {dist.get_world_size()}"
    checkpointer = elasticjob.Checkpointer(
        Path(os.environ["CHECKPOINT_DIR"], world.job), any_rank=any_rank
    )
    total = int(os.environ.get("EPOCHS", "100")) * (TRAINED // BATCH)
    if checkpointer.found:
        training.restore(checkpointer.found)
    place = training.place()
    if first:
        print(f"{here} from {place}", flush=True)
    try:
        while training.step < total:
            loss, samples = training.train_step()
            if first and training.step % LOG_STEPS == 0:
                print(f"step {training.step}/{total} {here} loss {loss:.4f}", flush=True)
            checkpointer.step(
                training.step,
                training.save,
                due=training.step % CHECKPOINT_STEPS == 0,
                total=total,
                samples=samples,
                metrics={"loss": loss},
            )
    except SystemExit:
        place = training.place()
        if first:
            print(f"{here} stopped after {place}", flush=True)
        return
    checkpointer.finish(training.step, training.save)
    accuracy = training.accuracy()
    if first:
        metrics = {"accuracy": accuracy, "trained": training.samples}
        elasticjob.report_step(total, total=total, metrics=metrics)
        done = f"{training.step} steps, {training.samples} samples"
        print(f"finished: {done}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
