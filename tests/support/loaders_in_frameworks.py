"""Counts the samples that the real loaders of a framework return, and checks that all are reported.

Several ranks take turns in this process: no framework needs a group to load samples.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import elasticjob

SIZE = 43
EPOCHS = 2
ONCE = Counter((epoch, number) for epoch in range(EPOCHS) for number in range(SIZE))
Loaded = Iterable[Any]  # of samples, scale, and whether it is the last part


def batches(rank: int, *, step: int = 0, processes: int = 2) -> elasticjob.GlobalBatches:
    """Open a data set in one of the ranks."""
    place: dict[str, Any] = {"rank": rank, "processes": processes, "step": step}
    return elasticjob.global_batches(
        f"train-{rank}", size=SIZE, global_batch=8, micro_batch=3, epochs=EPOCHS, **place
    )


def check(load: Callable[[elasticjob.GlobalBatches], Loaded]) -> None:
    """Train in two ranks by loops that are left in the middle of the first epoch."""
    counts = Counter[tuple[int, int]]()
    for rank in range(2):
        opened = batches(rank)
        while not opened.finished:
            epoch = opened.epoch
            for numbers, scale, last in load(opened):
                counts.update((epoch, number) for number in numbers.numpy().tolist() if scale)
                if last and opened.step == 3:
                    break
        assert not opened._leased, "all shards are reported"
    assert counts == ONCE, counts - ONCE


def torch() -> None:
    """Load global batches by PyTorch."""
    import elasticjob.torch

    def load(opened: elasticjob.GlobalBatches) -> Loaded:
        loader = elasticjob.torch.DataLoader(range(SIZE), opened, num_workers=2)
        return ((numbers, loader.part.scale, loader.part.last) for numbers in loader)

    check(load)


def tensorflow() -> None:
    """Load global batches by tf.data, which prefetches."""
    import elasticjob.tensorflow
    import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

    check(
        lambda opened: elasticjob.tensorflow.dataset(opened, lambda at: tf.gather(range(SIZE), at))
    )


def hugging_face() -> None:
    """Train by the Trainer, which looks ahead, from a step in the middle of the first epoch."""
    import datasets  # type: ignore[import-not-found, unused-ignore]
    import elasticjob.torch
    import torch
    import transformers  # type: ignore[import-not-found, unused-ignore]

    seen = [number for part in batches(0, processes=1) for number in part.indices][: 2 * 8]

    class Model(torch.nn.Linear):  # type: ignore[misc, unused-ignore]
        def forward(self, number: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.extend(number.tolist())
            return {"loss": super().forward(number[:, None].float()).mean()}

    class ElasticTrainer(transformers.Trainer):  # type: ignore[misc, unused-ignore]
        def get_train_dataloader(self) -> Any:
            return loader

    opened = batches(0, step=2, processes=1)
    data = datasets.Dataset.from_dict({"number": range(SIZE)}).with_format("torch")
    loader = elasticjob.torch.DataLoader(data, opened, num_workers=2)
    steps: dict[str, Any] = {"gradient_accumulation_steps": opened.division.accumulation}
    quiet: dict[str, Any] = {"use_cpu": True, "save_strategy": "no", "report_to": []}
    arguments = transformers.TrainingArguments("unused", num_train_epochs=EPOCHS, **steps, **quiet)
    ElasticTrainer(Model(1, 1), arguments, train_dataset=data).train()
    assert opened.finished
    assert Counter(seen) == Counter(dict.fromkeys(range(SIZE), EPOCHS))


if __name__ == "__main__":
    {"torch": torch, "hugging_face": hugging_face, "tensorflow": tensorflow}[sys.argv[1]]()
