#!/usr/bin/env bash
# A DeviceMesh whose ranks are not in ascending order trains correctly, and its distributed checkpoint has the shards in the wrong places.
# The docstring says that subgroups are sorted unless preserve_rank_order is set; not what a checkpoint then has. The first run downloads 3 GB.
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
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

WEIGHTS = [0, 1, 2, 3, 4, 5]


def sharded(values, mesh):
    """Return the state of a model with these weights, sharded by FSDP."""
    model = torch.nn.Linear(1, 6, bias=False)
    model.weight.data = torch.tensor(values, dtype=torch.float32)[:, None]
    return get_model_state_dict(fully_shard(model, mesh=mesh))


def whole(state):
    weight = state["weight"]
    return (weight.full_tensor() if hasattr(weight, "full_tensor") else weight).int().flatten().tolist()


def save(name, order, **options):
    """Save a model; return its weights, those that the same mesh loads, and those that are loaded without a mesh."""
    mesh = DeviceMesh("cpu", order, **options)
    trained, same, alone = sharded(WEIGHTS, mesh), sharded([0] * 6, mesh), {"weight": torch.zeros(6, 1)}
    dcp.save(trained, checkpoint_id=name)
    for target in (same, alone):
        dcp.load(target, checkpoint_id=name)
    return [whole(each) for each in (trained, same, alone)]


rank = int(sys.argv[1])
dist.init_process_group("gloo", store=dist.FileStore("store", 3), rank=rank, world_size=3)
usual, mixed = save("usual", [0, 1, 2]), save("mixed", [2, 0, 1])
kept = save("kept", [2, 0, 1], preserve_rank_order=True)
dist.destroy_process_group()
if rank == 0:
    print(f"torch {torch.__version__}: three processes shard a model by fully_shard over a DeviceMesh, and save it with dcp.save")
    print(f"Expected: for any order of the ranks in the mesh the checkpoint has the weights of the model, {WEIGHTS}.")
    for text, (model, same, alone) in (("[0, 1, 2]", usual), ("[2, 0, 1]", mixed), ("[2, 0, 1], preserve_rank_order=True", kept)):
        print(f"Seen: mesh {text}: the model has {model}; the same mesh loads {same}, a process without a mesh {alone}")
    print("FSDP shards by the sorted group, the checkpoint by the place in the mesh. A restart with the same mesh looks right;")
    print("the first one with another number of processes trains scrambled weights, without an error.")
    if usual != [WEIGHTS] * 3 or kept != [WEIGHTS] * 3 or mixed != [WEIGHTS, WEIGHTS, [4, 5, 0, 1, 2, 3]]:
        sys.exit("Changed: a checkpoint does not depend on the order of the ranks in the mesh, or does with preserve_rank_order, too.")
PY
export CUDA_VISIBLE_DEVICES=
for rank in 1 2; do venv/bin/python train.py "$rank" > "log.$rank" 2>&1 & done
venv/bin/python train.py 0 2> log.0 || { tail -5 log.*; exit 1; }
wait
