#!/usr/bin/env bash
# A learning rate schedule of PyTorch that is made for more steps gets its old length back from load_state_dict.
# CosineAnnealingLR then reaches its end early, and climbs again. The length is an attribute, and the state has every one;
# the documentation of load_state_dict does not mention it. The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import math
import sys

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, PolynomialLR


def cosine(optimizer, steps):
    return CosineAnnealingLR(optimizer, T_max=steps)


def polynomial(optimizer, steps):
    return PolynomialLR(optimizer, total_iters=steps)


def function(optimizer, steps):
    return LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)


def rates(kind):
    """Train 50 of 100 steps, and the rest by half of the processes, whose schedule has 150 steps; return five of its rates."""
    states = []
    for length, until in ((100, 50), (150, 150)):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        schedule = kind(optimizer, length)
        if states:
            optimizer.load_state_dict(states[0])
            schedule.load_state_dict(states[1])
        seen = {}
        while schedule.last_epoch < until:
            optimizer.step()
            schedule.step()
            seen[schedule.last_epoch] = abs(round(schedule.get_last_lr()[0], 2))
        states = [optimizer.state_dict(), schedule.state_dict()]
    return [seen[step] for step in (60, 80, 100, 120, 150)]


results = {kind.__name__: rates(kind) for kind in (cosine, polynomial, function)}
print(f"torch {torch.__version__}: a schedule of 100 steps is saved after 50; a new one of 150 steps, for half as many processes, loads the state")
print("Expected: the rate reaches 0 at step 150.")
for text, kind in (("CosineAnnealingLR", "cosine"), ("PolynomialLR", "polynomial"), ("LambdaLR of a cosine", "function")):
    print(f"Seen with {text}: {results[kind]} at the steps 60, 80, 100, 120, 150")
print("The cosine warms the finished model up again; PolynomialLR stops training at step 100. LambdaLR keeps its function out of the state.")
recorded = {"cosine": [0.35, 0.1, 0.0, 0.1, 0.5], "polynomial": [0.4, 0.2, 0.0, 0.0, 0.0], "function": [0.65, 0.45, 0.25, 0.1, 0.0]}
if results != recorded:
    sys.exit("Changed: a schedule keeps the length that it was made with.")
PY
