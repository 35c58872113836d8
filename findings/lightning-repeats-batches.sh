#!/usr/bin/env bash
# Lightning continues from a checkpoint inside of an epoch with the first batches of the epoch, and ends it after the right number.
# A warning speaks of unreliable results and of resumable data loaders, not of what is trained twice and never. The first run
# downloads 3 GB, as PyTorch brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check lightning==2.6.6 torch==2.15.0 numpy
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import logging
import sys
from importlib.metadata import version

import lightning.pytorch as pl
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def training_step(self, batch, number):
        self.seen += batch.int().tolist()
        return (self.weight * batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def train(steps, checkpoint=None):
    """Train the batches 0 to 7 until a number of steps is done; return those seen, and the last checkpoint."""
    save = pl.callbacks.ModelCheckpoint("checkpoints", "{step}", every_n_train_steps=3)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_steps=steps, max_epochs=1, callbacks=[save], **quiet)
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.arange(8.0)), ckpt_path=checkpoint)
    return module.seen, save.best_model_path


before, path = train(3)
after, _ = train(8, path)
print(f"lightning {version('lightning')}: an epoch of the batches 0 to 7 in their order, with a checkpoint after three of them")
print(f"The first run trains {before}, and another one continues from its checkpoint.")
print("Expected: it trains [3, 4, 5, 6, 7].")
print(f"Seen: it trains {after}, and the epoch is over.")
print("A job that is often interrupted trains the beginning of its data often, and the end never.")
if before != [0, 1, 2] or after != [0, 1, 2, 3, 4]:
    sys.exit("Changed: the epoch continues after the batches that were trained.")
PY
