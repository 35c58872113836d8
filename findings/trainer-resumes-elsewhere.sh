#!/usr/bin/env bash
# The Trainer of transformers takes its place in the data and in the learning rate from the number of steps, whatever their size was.
# A job that continues with fewer processes repeats samples, one with more leaves some out. Issues ask about it; the documentation of
# resume_from_checkpoint does not mention it. The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check transformers==5.24.0 accelerate==1.15.0 torch==2.15.0 numpy
cat > train.py <<'PY'
import json
import sys

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, x):
        self.seen += x.int().flatten().tolist()
        return {"loss": (self.weight * x).mean()}


class Stop(transformers.TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        rates.append(round(trainer.lr_scheduler.get_last_lr()[0], 3))
        if sys.argv[1] == "stop":
            control.should_save = control.should_training_stop = state.global_step == 6


rates = []
arguments = transformers.TrainingArguments(
    "out", num_train_epochs=1, use_cpu=True, per_device_train_batch_size=2, learning_rate=1.0, save_steps=1000, report_to=[], disable_tqdm=True
)
model = Model()
trainer = transformers.Trainer(model, arguments, train_dataset=[{"x": float(n)} for n in range(48)], callbacks=[Stop()])
trainer.train(resume_from_checkpoint=None if sys.argv[1] == "stop" else "out/checkpoint-6")
print(json.dumps([model.seen, rates]))
PY
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from importlib.metadata import version


def train(size, mode):
    """Return the samples that so many processes train, and the learning rate after each of their steps."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py", mode], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]
    outputs = [json.loads(each.communicate()[0].splitlines()[-1]) for each in ranks]
    return [sample for samples, _ in outputs for sample in samples], outputs[0][1]


def resized(before, after):
    """Train six steps by some processes and the rest of the epoch by others; return what is trained twice, and never, and two rates."""
    first, rates = train(before, "stop")
    second, later = train(after, "resume")
    counts = Counter(first + second)
    return sum(times > 1 for times in counts.values()), 48 - len(counts), rates[-1], later[0]


print(f"transformers {version('transformers')}: an epoch of 48 samples, two a process and step")
print("The Trainer saves after six steps; another number of processes continues from there.")
print("Expected: each sample is trained once, and the learning rate falls evenly.")
results = {sizes: resized(*sizes) for sizes in ((2, 1), (1, 2))}
for (before, after), (twice, never, last, first) in results.items():
    print(f"Seen with {before}, then {after}: {twice} samples are trained twice, {never} never; the rate was {last:g}, and is {first:g} a step later.")
print("A step counts as a step, however many samples it had. Change per_device_train_batch_size so that all together keep their batch.")
if results != {(2, 1): (12, 0, 0.5, 0.708), (1, 2): (0, 12, 0.75, 0.417)}:
    sys.exit("Changed: the Trainer converts its place, or refuses another number of processes.")
PY
