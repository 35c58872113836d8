"""Hand-written digits with Keras 3, by one process that may be stopped at any step and goes on in another pod.

What makes it so:
- The callback `elasticjob.keras.ElasticJob` reports steps, and when the job asks for it saves and ends `fit`.
- `elasticjob.Checkpointer` keeps the checkpoints, and finds the one with which the next process begins.
- The batch of a step follows from its number: the training does not depend on where it was interrupted.

Runs as `python train.py`, with any backend; JAX unless KERAS_BACKEND says otherwise. Environment: EPOCHS,
CHECKPOINT_DIR (needed in a job: a folder that the next pod can read).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import elasticjob

os.environ.setdefault("KERAS_BACKEND", "jax")  # has to be set before Keras is loaded

import keras
import numpy as np
from elasticjob.keras import ElasticJob
from sklearn.datasets import load_digits

TRAINED = 1440  # of the 1,797 images; the rest tests
BATCH = 120
SEED = 1
CHECKPOINT_STEPS = 100


class Digits(keras.utils.PyDataset):  # type: ignore[misc, unused-ignore]
    """The batches that are still to be trained."""

    def __init__(self, images: Any, labels: Any, first: int, total: int) -> None:
        super().__init__()
        self._images, self._labels, self._first, self._total = images, labels, first, total

    def __len__(self) -> int:
        return self._total - self._first

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        epoch, position = divmod(self._first + number, TRAINED // BATCH)
        order = np.random.default_rng(SEED + epoch).permutation(TRAINED)
        batch = order[position * BATCH : (position + 1) * BATCH]
        return self._images[batch], self._labels[batch]


def new_model() -> Any:
    """Return the model before the first step."""
    keras.utils.set_random_seed(SEED)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    return model


def main() -> None:
    """Train the remaining steps."""
    world = elasticjob.world()
    folder = os.environ.get("CHECKPOINT_DIR") or tempfile.mkdtemp()
    checkpointer = elasticjob.Checkpointer(Path(folder, world.job))
    model = keras.models.load_model(Path(checkpointer.found, "model.keras")) if checkpointer.found else new_model()
    first, total = int(model.optimizer.iterations), int(os.environ.get("EPOCHS", "30")) * (TRAINED // BATCH)
    print(f"round {world.round} from step {first}", flush=True)

    def write(path: str) -> None:
        stop.model.save(Path(path, "model.keras"))  # a callback's model has JAX's state in mid-epoch, too

    def save(step: int) -> None:
        checkpointer.save(step, write)

    def save_if_due(batch: int, logs: object) -> None:
        if (step := first + batch + 1) % CHECKPOINT_STEPS == 0:
            save(step)

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    images, labels = images[order].astype("float32") / 16, labels[order]
    stop = ElasticJob(save=save, samples=BATCH, total=total)
    due = keras.callbacks.LambdaCallback(on_train_batch_end=save_if_due)
    stop.set_model(model)
    if first < total:
        remaining = Digits(images[:TRAINED], labels[:TRAINED], first, total)
        model.fit(remaining, epochs=1, shuffle=False, verbose=0, callbacks=[due, stop])
    if stop.stopped:
        raise SystemExit(0)  # the next world goes on
    checkpointer.finish(total, write)
    _, accuracy = model.evaluate(images[TRAINED:], labels[TRAINED:], verbose=0)
    print(f"finished: {total} steps, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
