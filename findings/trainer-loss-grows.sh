#!/usr/bin/env bash
# The Trainer of transformers multiplies loss and gradients by the number of processes if a model takes **kwargs and returns the
# mean of its batch. Its documentation of average_tokens_across_devices speaks of a precise loss. The first run downloads 3 GB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check transformers==5.24.0 accelerate==1.15.0 torch==2.15.0 numpy
export CUDA_VISIBLE_DEVICES=
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import os
import subprocess
import sys
from importlib.metadata import version

PROGRAM = """
import sys
import torch, transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels, **kwargs):
        return {"loss": ((self.weight * x - labels) ** 2).mean()}

size, average = int(sys.argv[1]), sys.argv[2] == "True"
arguments = transformers.TrainingArguments(
    "out", max_steps=1, use_cpu=True, per_device_train_batch_size=6 // size, max_grad_norm=0,
    average_tokens_across_devices=average, report_to=[], disable_tqdm=True, save_strategy="no",
)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
samples = [{"x": 1.0, "labels": 1.0} for _ in range(6)]
transformers.Trainer(model, arguments, train_dataset=samples, optimizers=(optimizer, constant)).train()
print(round(model.weight.item(), 3))
"""


def weight(size, port, average=True):
    """Return the weight after a step of six samples, of which each process has an equal part."""
    common = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(size), str(average)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]
    (only,) = {float(each.communicate()[0].splitlines()[-1]) for each in ranks}
    return only


one, three, cured = weight(1, "29551"), weight(3, "29552"), weight(3, "29553", average=False)
print(f"transformers {version('transformers')}: one step of SGD with the same six samples, by one process and by three")
print("Expected: the same weight.")
print(f"Seen: {one:g} by one process, {three:g} by three; {cured:g} by three with average_tokens_across_devices=False.")
print("The Trainer assumes that a model with **kwargs divides by num_items_in_batch; the learning rate grows with the world.")
if one == 0 or (cured, three) != (one, round(3 * one, 3)):
    sys.exit("Changed: the weight does not depend on the number of processes.")
PY
