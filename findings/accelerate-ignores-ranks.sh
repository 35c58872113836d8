#!/usr/bin/env bash
# Accelerate forms no world on machines without an accelerator, although each process has a rank and the size of the world.
# Each process is the main process of its own training; nothing is printed. The first run downloads 3 GB, as PyTorch brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check accelerate==1.15.0 torch==2.15.0 numpy
export CUDA_VISIBLE_DEVICES=
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import os
import subprocess
import sys
from importlib.metadata import version

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator()
print(accelerator.num_processes, accelerator.is_main_process)
"""
TORCH = """
import torch.distributed as dist
dist.init_process_group()
print(dist.get_world_size(), dist.get_rank() == 0)
"""


def run(program, port, **variables):
    """Run a program with the variables that torchrun sets; return what each of two processes prints."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    return [each.communicate()[0].splitlines()[-1].split() for each in ranks]


torch = run(TORCH, "29541")
alone = run(ACCELERATE, "29542")
asked = run(ACCELERATE, "29543", ACCELERATE_USE_CPU="true")
print(f"accelerate {version('accelerate')}: two processes with RANK, WORLD_SIZE=2, MASTER_ADDR, … and no accelerator: size, is it main?")
print("Expected: both are in a world of two, as with torch.distributed.")
print(f"torch.distributed.init_process_group(): {torch}")
print(f"Seen: Accelerator(): {alone}")
print(f"Seen: Accelerator() with ACCELERATE_USE_CPU=true: {asked}")
print("Each process trains on all the data and writes the checkpoint; the Trainer of transformers builds on it.")
if torch != asked or alone != [["1", "True"]] * 2:
    sys.exit("Changed: Accelerate forms the world of its variables, or refuses.")
PY
