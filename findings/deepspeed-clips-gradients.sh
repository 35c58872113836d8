#!/usr/bin/env bash
# DeepSpeed clips the gradient to a norm of 1 if its configuration does not mention clipping, at every stage of ZeRO.
# Its documentation has the default in a table of settings. The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy 'setuptools<80' wheel
DS_BUILD_OPS=0 DS_ACCELERATOR=cpu venv/bin/pip install -q --no-compile --disable-pip-version-check --no-build-isolation \
    deepspeed==0.19.8
export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531
venv/bin/python - 2> log > steps <<'PY' || { tail -5 log; exit 1; }
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # nothing is compiled
deepspeed.init_distributed("gloo")


def step(stage, **settings):
    """Return the length of the first step of SGD with rate 1: that of a gradient of norm 5."""
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, **settings}
    config["zero_allow_untested_optimizer"] = True  # it means SGD
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    engine.backward(engine(torch.tensor([[3.0, 4.0]])).sum())
    engine.step()
    return round(model.weight.detach().norm().item(), 3)


print("steps", *(step(stage) for stage in (0, 1, 2)), step(2, gradient_clipping=0.0))
PY
venv/bin/python - <<'PY'
import sys
from importlib.metadata import version
from pathlib import Path

(line,) = (each for each in Path("steps").read_text().splitlines() if each.startswith("steps "))
plain, one, two, off = map(float, line.split()[1:])
print(f"deepspeed {version('deepspeed')}: a step of SGD with rate 1 and a gradient of norm 5, without a word on clipping")
print("Expected: the weights move by 5, as with the optimizer alone.")
print(f"Seen: stage 0 moves them by {plain:g}, stage 1 by {one:g}, stage 2 by {two:g}.")
print(f'Seen: "gradient_clipping": 0 at stage 2 moves them by {off:g}.')
print("A program that is moved to DeepSpeed trains otherwise than before, and with Adam the difference is hard to see.")
if (plain, one, two, off) != (1.0, 1.0, 1.0, 5.0):
    sys.exit("Changed: DeepSpeed does not clip unless it is asked to.")
PY
