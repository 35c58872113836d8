"""Trains global batches by a real DataLoader; the model is the count of each sample.

A step takes a second until the file END exists.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import elasticjob
import elasticjob.torch
import torch
import torch.distributed as dist
from elasticjob_shards import checkpoint

SIZE = 303
EPOCHS = 4


def main() -> None:
    """Train until all samples are in the model."""
    dist.init_process_group("gloo")
    world = elasticjob.world()
    checkpointer = elasticjob.Checkpointer(os.environ["CHECKPOINTS"])
    saved = {"model": torch.zeros(EPOCHS, SIZE, dtype=torch.int64), "step": 0}
    if checkpointer.found:
        saved = torch.load(f"{checkpointer.found}/state.pt")

    def save(folder: str) -> None:
        if world.rank == 0:
            torch.save(saved, f"{folder}/state.pt")

    batches = elasticjob.global_batches(
        "train", size=SIZE, global_batch=10, step=saved["step"], micro_batch=2, epochs=EPOCHS
    )
    loader = elasticjob.torch.DataLoader(torch.arange(SIZE), batches, num_workers=2)
    gradient = torch.zeros_like(saved["model"])
    while not batches.finished:
        for numbers in loader:
            part = loader.part
            if part.scale:
                gradient[part.epoch].index_add_(0, numbers, torch.ones_like(numbers))
            if not part.last:
                continue
            dist.all_reduce(gradient)
            saved["model"] += gradient
            gradient.zero_()
            saved["step"] += 1
            step = saved["step"]
            checkpointer.step(step, save, due=step % 3 == 0, metrics=batches.metrics)
            if step % 3 == 1:
                print(f"round {world.round} size {world.size} has trained step {step}", flush=True)
            if not Path(os.environ["END"]).exists():
                time.sleep(1)
    checkpointer.finish(saved["step"], save)
    if batches._ledger:
        counts = [each.tolist() for each in saved["model"].unique(return_counts=True)]
        account = batches._ledger.checkpoint(60)
        _, position = checkpoint.decode(account, batches._dataset, most=1000)
        done = position.fresh - len(position.undone)
        model = dict(zip(*counts, strict=True))
        print(f"in the model: {model}; in the ledger: {done} of {batches._dataset.total}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
