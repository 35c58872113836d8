"""Trains hand-written digits in processes that continue when the number of pods changes.

`elasticjob.torch.worlds` forms the process group again in the running processes, and gives a new
process the state from the memory of another one. As in train.py, whose data this script uses, the
global batch is constant, so the result does not depend on the number of ranks.

Its job has `onWorldChange: Notify` (worlds.yaml). Environment: as train.py. A checkpoint in
CHECKPOINT_DIR is read only when no process has the state, as after a suspension.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in train.py

import elasticjob.torch
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from train import (  # type: ignore[import-not-found, unused-ignore]
    BATCH,
    CHECKPOINT_STEPS,
    LOG_STEPS,
    SEED,
    TRAINED,
    batch_of,
    load_digits,
)


def main() -> None:
    """Train, in each world of the job."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    images, labels = (table.to(device) for table in load_digits())
    torch.manual_seed(SEED)
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    state = elasticjob.torch.State(model=network, optimizer=optimizer, samples=0)
    total = int(os.environ.get("EPOCHS", "100")) * (TRAINED // BATCH)
    folder = Path(os.environ["CHECKPOINT_DIR"], elasticjob.world().job)

    for world in elasticjob.torch.worlds(state, folder=folder):
        with world:
            here = f"round {world.round} size {world.size}"
            if world.rank == 0:
                print(f"{here} from step {state.step}", flush=True)
            model = nn.parallel.DistributedDataParallel(network)
            while state.step < total:
                mine = batch_of(state.step)[world.rank :: world.size]
                loss = nn.functional.cross_entropy(
                    model(images[mine]), labels[mine], reduction="sum"
                )
                optimizer.zero_grad()
                (loss * world.size / BATCH).backward()  # DDP averages over the ranks
                optimizer.step()
                trained = torch.tensor([float(loss), len(mine)], device=device)
                dist.all_reduce(trained)
                state.step += 1
                state.samples += int(trained[1])
                mean = float(trained[0]) / BATCH
                if world.rank == 0 and state.step % LOG_STEPS == 0:
                    print(f"step {state.step}/{total} {here} loss {mean:.4f}", flush=True)
                world.commit(
                    total=total,
                    samples=len(mine),
                    metrics={"loss": mean},
                    save=state.step % CHECKPOINT_STEPS == 0,
                )
        if world.rank == 0 and state.step < total:
            print(f"{here} stopped after step {state.step}", flush=True)

    if world.rank == 0:
        with torch.no_grad():
            right = network(images[TRAINED:]).argmax(dim=1) == labels[TRAINED:]
        accuracy = float(right.float().mean())
        metrics = {"accuracy": accuracy, "trained": state.samples}
        elasticjob.report_step(total, total=total, metrics=metrics)
        done = f"{state.step} steps, {state.samples} samples"
        print(f"finished: {done}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
