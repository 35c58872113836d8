"""Trains hand-written digits with Hugging Face's Trainer by a changing number of processes.

What makes it elastic:
- The callback `elasticjob.hf.ElasticJob` reports steps. When the job requests a stop, it makes the
  Trainer save a checkpoint after a step that all ranks agree on, and ends `train`.
- The batch of all ranks together is constant, so a step is the same part of an epoch in every
  world.

Runs as `python train.py`, once for each process. Environment: EPOCHS, CHECKPOINT_DIR (a folder that
all processes of the job share).
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

import torch  # type: ignore[import-not-found, unused-ignore]
from elasticjob.hf import ElasticJob
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments  # type: ignore[import-not-found, unused-ignore]

TRAINED = 1440  # of the 1,797 images; the rest are test images
BATCH = 120  # images of all ranks together
PART = 10  # images that a rank trains at a time: 12 parts, for 1, 2, 3, 4 or 6 ranks
SEED = 1
CHECKPOINT_STEPS = 100


class Network(nn.Module):  # type: ignore[misc, unused-ignore]
    """The model. The Trainer expects it to return the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, images: Any, labels: Any) -> dict[str, Any]:
        """Return loss and logits of a batch."""
        logits = self.layers(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def read_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels, shuffled: other people wrote the last ones than the first."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    return torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint. The Trainer writes `trainer_state.json` last."""
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    if not found:
        return None
    return str(max(found, key=lambda path: int(path.name.partition("-")[2])))


def main() -> None:
    """Train the remaining steps."""
    world = elasticjob.world()
    folder = Path(os.environ.get("CHECKPOINT_DIR") or tempfile.mkdtemp(), world.job)
    arguments = TrainingArguments(
        str(folder),
        # Constant, because the Trainer continues with the value in its checkpoint.
        per_device_train_batch_size=PART,
        gradient_accumulation_steps=BATCH // PART // world.size,
        num_train_epochs=int(os.environ.get("EPOCHS", "30")),
        learning_rate=0.002,
        lr_scheduler_type="constant",
        seed=SEED,
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=3,
        logging_steps=25,
        report_to=[],
        disable_tqdm=True,
    )
    images, labels = read_digits()
    data = [{"images": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    callback = ElasticJob()
    found = last_checkpoint(folder)
    if world.rank == 0:
        print(f"round {world.round} size {world.size} from {found or 'the beginning'}", flush=True)
    model = Network()
    trainer = Trainer(model, arguments, train_dataset=data[:TRAINED], callbacks=[callback])
    trainer.train(resume_from_checkpoint=found)
    if callback.stopped:
        raise SystemExit(0)  # the next world continues
    if world.rank == 0:
        model.cpu().eval()
        with torch.no_grad():
            guessed = model(images[TRAINED:], labels[TRAINED:])["logits"].argmax(dim=1)
        accuracy = float((guessed == labels[TRAINED:]).float().mean())
        print(f"finished: {trainer.state.global_step} steps, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
