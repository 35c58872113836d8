#!/usr/bin/env bash
# A distributed checkpoint is loaded only as far as the target has its keys: a fresh optimizer gets no moments, without an error.
# A key that the file lacks is an error. get_state_dict makes the moments first; the docstring of dcp.load says that each rank must have the
# same keys, not that others are left out. The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys

import torch
import torch.distributed.checkpoint as dcp


def start():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model, optimizer, steps):
    for _ in steps:
        optimizer.zero_grad()
        model(torch.tensor([[1.0]])).sub(5).square().sum().backward()
        optimizer.step()
    return round(model.weight.item(), 4)


def state(model, optimizer, readers):
    positions = {f"reader-{number}": torch.tensor(position) for number, position in enumerate(readers)}
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "positions": positions}


model, optimizer = start()
train(model, optimizer, range(20))
dcp.save(state(model, optimizer, readers=[7, 9]), checkpoint_id="checkpoint")
plain = train(model, optimizer, range(10))

model, optimizer = start()
loaded = state(model, optimizer, readers=[0])
dcp.load(loaded, checkpoint_id="checkpoint")
optimizer.load_state_dict(loaded["optimizer"])
moments, positions = len(loaded["optimizer"]["state"]), {key: value.item() for key, value in loaded["positions"].items()}
resumed = train(model, optimizer, range(10))
try:
    dcp.load(state(model, optimizer, readers=[0, 0, 0]), checkpoint_id="checkpoint")
    refusal = "nothing"
except dcp.api.CheckpointException as error:
    refusal = str(error.failures[0][0])
print(f"torch {torch.__version__}: dcp.save of a model, Adam and the positions of two readers")
print("A new process with one reader calls dcp.load for its new model and Adam.")
print("Expected: everything is loaded, or an error says what is not.")
print(f"Seen: moments of {moments} parameters are loaded, and the positions {positions}.")
print(f"Seen: ten steps later the weight is {resumed}; without the restart it is {plain}.")
print(f"Seen: with three readers dcp.load raises: {refusal}")
print("Each restart begins Adam anew: only the loss shows it. A job that shrinks loses the positions of its other readers.")
if moments != 0 or positions != {"reader-0": 7} or resumed == plain or "reader-2" not in refusal:
    sys.exit("Changed: dcp.load brings what the target does not have, or refuses it.")
PY
