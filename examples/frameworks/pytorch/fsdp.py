"""Trains hand-written digits with FSDP: each process has a part of the model and of the optimizer.

The processes write their parts by torch.distributed.checkpoint, side by side. Another number of
processes reads them: each one reads what its own part covers. So the job changes its size as one
with DistributedDataParallel does (train.py, beside this file, from which it takes the data).

Needs PyTorch 2.6 or later. Runs as `python fsdp.py`, once for each process. Environment: EPOCHS,
CHECKPOINT_DIR and DIGITS, as train.py.
"""

from __future__ import annotations

import gc
import hashlib
import os
from pathlib import Path
from typing import Any

import elasticjob

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from torch.distributed.checkpoint.state_dict import (  # type: ignore[import-not-found, unused-ignore]
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import (  # type: ignore[import-not-found, unused-ignore]
    init_device_mesh,
)
from torch.distributed.fsdp import fully_shard  # type: ignore[import-not-found, unused-ignore]
from train import (  # type: ignore[import-not-found, unused-ignore]
    BATCH,
    CHECKPOINT_STEPS,
    LOG_STEPS,
    SEED,
    TRAINED,
    batch_of,
    load_digits,
)


class Training:
    """The state of the training, of which each rank has a part, and its steps."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(SEED)
        network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in network:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        self.model = fully_shard(network, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.002)
        self.step = 0
        self.samples = 0  # of all ranks
        self._device = device
        images, labels = load_digits()
        self._images = images.to(device)
        self._labels = labels.to(device)

    def restore(self, folder: str) -> None:
        """Continue from a checkpoint of any number of ranks. All ranks call it."""
        saved = self._state()
        dcp.load(saved, checkpoint_id=folder)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=saved["model"],
            optim_state_dict=saved["optimizer"],
        )
        self.step = int(saved["counts"][0])
        self.samples = int(saved["counts"][1])

    def save(self, folder: str) -> None:
        """Write this rank's part of a checkpoint."""
        dcp.save(self._state(), checkpoint_id=folder)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        counts = torch.tensor([self.step, self.samples])
        return {"model": model, "optimizer": optimizer, "counts": counts}

    def digest(self) -> str:
        """Return a digest of the whole state, which the number of ranks does not change.

        All ranks call it.
        """
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model, optimizer = get_state_dict(self.model, self.optimizer, options=whole)
        digest = hashlib.sha256()
        for name, values in [*sorted(model.items()), *sorted(optimizer.get("state", {}).items())]:
            digest.update(name.encode())
            parts = values if isinstance(values, dict) else {"": values}
            for _, part in sorted(parts.items()):
                digest.update(part.numpy().tobytes())
        return digest.hexdigest()[:16]

    def train_step(self) -> tuple[float, int]:
        """Train on this rank's part of a batch; return the batch's loss and the part's size."""
        size = dist.get_world_size()
        mine = batch_of(self.step)[dist.get_rank() :: size]
        loss = nn.functional.cross_entropy(
            self.model(self._images[mine]), self._labels[mine], reduction="sum"
        )
        self.optimizer.zero_grad()
        (loss * size / BATCH).backward()  # FSDP averages over the ranks
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


def main() -> None:
    """Connect to the other processes, train, and disconnect."""
    gpus = torch.cuda.device_count()
    dist.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cpu")
    if gpus:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    train(device)
    gc.collect()  # the model must be destroyed before the group
    dist.destroy_process_group()


def train(device: torch.device) -> None:
    """Train the remaining steps, or until a stop is requested."""
    world = elasticjob.world()
    first = dist.get_rank() == 0
    here = f"round {world.round} size {dist.get_world_size()}"
    checkpointer = elasticjob.Checkpointer(Path(os.environ["CHECKPOINT_DIR"], world.job))
    training = Training(device)
    total = int(os.environ.get("EPOCHS", "100")) * (TRAINED // BATCH)
    if checkpointer.found:
        training.restore(checkpointer.found)
    digest = training.digest()
    if first:
        print(f"{here} from step {training.step} state {digest}", flush=True)
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
        digest = training.digest()
        if first:
            print(f"{here} stopped after step {training.step} state {digest}", flush=True)
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
