#!/usr/bin/env bash
# If each rank saves its own values under the same keys, a distributed checkpoint keeps some of one rank and some of another.
# The rank with the least to write keeps a value. A maintainer says in an issue that equal keys must have equal values; dcp.save's docstring
# speaks of distributed tensors only. The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > train.py <<'PY'
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", store=dist.FileStore(f"store-{size}", size), rank=rank, world_size=size)


def state(rank):
    """Return what a rank keeps for itself: how far it is, its random numbers, and the samples that it has trained."""
    return {"position": rank, "random": torch.full((5000,), rank), "trained": torch.full((1000,), rank)}


dcp.save(state(rank), checkpoint_id=f"checkpoint-{size}")
loaded = state(-1)
dcp.load(loaded, checkpoint_id=f"checkpoint-{size}")
owners = {key: int(value if key == "position" else value[0]) for key, value in loaded.items()}
print(" ".join(f"{key}={owner}" for key, owner in owners.items()))
dist.destroy_process_group()
PY
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import subprocess
import sys
from importlib.metadata import version


def loaded(size):
    """Return whose values each of so many ranks loads."""
    command = [sys.executable, "train.py"]
    ranks = [subprocess.Popen([*command, str(rank), str(size)], stdout=subprocess.PIPE, text=True) for rank in range(size)]
    return [each.communicate()[0].splitlines()[-1] for each in ranks]


two, three = loaded(2), loaded(3)
print(f"torch {version('torch')}: each rank saves a number and two tensors of its own under the same keys with dcp.save, and loads them")
print("Expected: each rank gets its own values again, or those of rank 0, or an error.")
print(f"Seen with two ranks: each loads the values of the ranks {two[0]}")
print(f"Seen with three ranks: each loads the values of the ranks {three[0]}")
print("No rank ever had this combination: the position of one goes with the random numbers of another. Put the rank into the keys.")
if len({*two}) != 1 or len({*three}) != 1 or any(len({*each[0].replace("=", " ").split()[1::2]}) < 2 for each in (two, three)):
    sys.exit("Changed: each rank loads its own values, or all load those of one rank.")
PY
