"""Trains hand-written digits with Lightning by a changing number of processes.

What makes it elastic:
- The callback `elasticjob.lightning.ElasticJob` reports steps. When the job requests a stop, it
  saves a checkpoint after a step that all ranks agree on, and ends `fit`.
- The batch of all ranks together is constant, so a step is the same part of an epoch in every
  world, and the callback skips the images that the epoch has trained already.
- Each world saves to its own folder. So a process that is cut off, while the others form a new
  world and continue, cannot overwrite their checkpoints.

Runs as `python train.py`, once for each process, or as `torchrun train.py`. Environment: EPOCHS,
CHECKPOINT_DIR (a folder that all processes of the job share).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import elasticjob

# One thread for each process, because the example runs on small machines. torch reads it when it is
# imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning.pytorch as pl  # type: ignore[import-not-found, unused-ignore]
import torch  # type: ignore[import-not-found, unused-ignore]
from elasticjob.lightning import ElasticJob
from lightning.pytorch.callbacks import ModelCheckpoint  # type: ignore[import-not-found, unused-ignore]
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset  # type: ignore[import-not-found, unused-ignore]

TRAINED = 1440  # of the 1,797 images; the rest are test images
BATCH = 120  # images of all ranks together: divisible by 1, 2, 3, 4, 5 and 6 of them
SEED = 1
CHECKPOINT_STEPS = 100


class Network(pl.LightningModule):  # type: ignore[misc, unused-ignore]
    """The model and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch: Any, number: int) -> Any:
        """Return the loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def read_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels, shuffled: other people wrote the last ones than the first."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    return torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint of the latest world that has saved one."""
    found = folder.glob("round-*/*.ckpt")
    return max(found, key=lambda path: (path.parent.name, path.stat().st_mtime), default=None)


def main() -> None:
    """Train the remaining steps."""
    world = elasticjob.world()
    size = world.size
    first_rank = world.rank == 0
    folder = Path(os.environ.get("CHECKPOINT_DIR") or tempfile.mkdtemp(), world.job)
    found = last_checkpoint(folder)
    mine = folder / f"round-{world.round:08}"
    mine.mkdir(parents=True, exist_ok=True)
    callback = ElasticJob(mine / "stop.ckpt", samples=BATCH // size)
    due = ModelCheckpoint(
        mine, "{step}", every_n_train_steps=CHECKPOINT_STEPS, monitor="step", mode="max"
    )
    trainer = pl.Trainer(
        accelerator="auto",
        devices=world.local_size,
        num_nodes=size // world.local_size,
        max_steps=int(os.environ.get("EPOCHS", "30")) * (TRAINED // BATCH),
        callbacks=[callback, due],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    images, labels = read_digits()
    if first_rank:
        print(f"round {world.round} size {size} from {found or 'the beginning'}", flush=True)
    pl.seed_everything(SEED)
    model = Network()
    loader = DataLoader(
        TensorDataset(images[:TRAINED], labels[:TRAINED]), batch_size=BATCH // size, shuffle=True
    )
    trainer.fit(model, loader, ckpt_path=found, weights_only=False)
    if callback.stopped:
        raise SystemExit(0)  # the next world continues
    if first_rank:
        with torch.no_grad():
            accuracy = float(
                (model.cpu().layers(images[TRAINED:]).argmax(dim=1) == labels[TRAINED:])
                .float()
                .mean()
            )
        print(f"finished: {trainer.global_step} steps, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
