"""The training of `elasticjob doctor --gpu`: small steps on a GPU, without one on the CPU.

It runs under the user's Python, which has PyTorch and needs no package of this command. Each
process writes a file for its world: a line of JSON about itself, then the time of each step.
"""

# ruff: noqa: E402 (the time of the start is taken before the imports)
import time

_BEGAN = time.time()

import json
import os
import sys
from pathlib import Path

import elasticjob
import torch
import torch.distributed as dist

_IMPORTED = time.time()
_SIDE = 512


def main() -> None:
    """Train until the file `end` is there, in all ranks after the same step."""
    folder = Path(sys.argv[1])
    world = elasticjob.world()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if world.size > 1:
        dist.init_process_group("gloo")
    weights = torch.zeros(_SIDE, _SIDE, device=device)
    with Path(folder, f"{world.round}-{world.rank}").open("w") as log:
        log.write(json.dumps({"pid": os.getpid(), "import_seconds": _IMPORTED - _BEGAN}) + "\n")
        step = 0
        while True:
            gradient = torch.ones_like(weights) / world.size
            ends = torch.tensor(float(Path(folder, "end").exists()))
            if world.size > 1:
                dist.all_reduce(gradient)
                dist.all_reduce(ends)
            weights += gradient
            step += 1
            # It waits for the device, and is exact: the parts of all ranks are powers of two.
            if float(weights.mean()) != step:
                raise SystemExit(f"step {step}: the all-reduce is wrong, {weights.mean()}")
            elasticjob.report_step(step, samples=1)
            log.write(f"{time.time()}\n")
            log.flush()
            if ends:
                return
            time.sleep(0.02)


if __name__ == "__main__":
    main()
