"""Trains hand-written digits with Keras 3 on TensorFlow by a changing number of workers.

What makes it elastic:
- The callback `elasticjob.keras.ElasticJob` reports steps. When the job requests a stop, it saves
  after a step that all workers agree on, and ends `fit`.
- `elasticjob.Checkpointer` writes the checkpoints, and finds the one from which the next world
  continues.
- The step's number determines its batch, and each worker trains a part of it. So the result depends
  neither on interruptions nor on the number of workers.

Runs as `python train.py`, once for each worker. Environment: EPOCHS, CHECKPOINT_DIR (a folder that
all workers of the job share).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import elasticjob

os.environ["KERAS_BACKEND"] = "tensorflow"  # Keras reads it when it is imported
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]
from elasticjob.keras import ElasticJob
from sklearn.datasets import load_digits

TRAINED = 1440  # of the 1,797 images; the rest are test images
BATCH = 120  # images of all workers together: divisible by 1, 2, 3, 4, 5 and 6 of them
SEED = 1
CHECKPOINT_STEPS = 100

# Reads TF_CONFIG. TensorFlow requires it before all other calls.
strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function  # type: ignore[untyped-decorator]
def sum_of_all(value: Any) -> Any:
    """Return the sum over all workers, which must call this together."""
    return strategy.reduce("SUM", strategy.run(tf.identity, args=(value,)), axis=None)


def any_rank(mine: bool) -> bool:
    """Return whether it is true in any worker."""
    return bool(sum_of_all(tf.constant(int(mine))) > 0)


@keras.saving.register_keras_serializable()
class Network(keras.Sequential):  # type: ignore[misc, unused-ignore]
    """A model that is the same in all workers.

    Each step adds up the gradients of all workers, which Keras 3 does not do itself.
    """

    def make_train_function(self, force: bool = False) -> None:
        """Set the function that `fit` calls for each step, with the iterator of the batches."""
        self.train_function = lambda batches: self._train(*next(batches))

    @tf.function  # type: ignore[untyped-decorator]
    def _train(self, images: Any, labels: Any) -> dict[str, Any]:
        """Train on this worker's part of a batch. All parts have the same size."""
        with tf.GradientTape() as tape:
            loss = self.compute_loss(images, labels, self(images, training=True))
            loss /= strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply([sum_of_all(each) for each in gradients], self.trainable_weights)
        return {"loss": sum_of_all(loss)}


class Digits(keras.utils.PyDataset):  # type: ignore[misc, unused-ignore]
    """This worker's parts of the remaining batches."""

    def __init__(self, images: Any, labels: Any, first: int, total: int) -> None:
        super().__init__()
        self._images = images
        self._labels = labels
        self._first = first
        self._total = total
        self._world = elasticjob.world()

    def __len__(self) -> int:
        return self._total - self._first

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        epoch, position = divmod(self._first + number, TRAINED // BATCH)
        order = np.random.default_rng(SEED + epoch).permutation(TRAINED)
        batch = order[position * BATCH : (position + 1) * BATCH]
        mine = batch[self._world.rank :: self._world.size]
        return self._images[mine], self._labels[mine]


def new_model() -> Any:
    """Return the initial model."""
    keras.utils.set_random_seed(SEED)
    model = Network(
        [keras.layers.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return model


def main() -> None:
    """Train the remaining steps."""
    world = elasticjob.world()
    folder = os.environ.get("CHECKPOINT_DIR") or tempfile.mkdtemp()
    checkpointer = elasticjob.Checkpointer(Path(folder, world.job), any_rank=any_rank)
    found = checkpointer.found
    model = keras.models.load_model(Path(found, "model.keras")) if found else new_model()
    first = int(model.optimizer.iterations)
    total = int(os.environ.get("EPOCHS", "30")) * (TRAINED // BATCH)
    if world.rank == 0:
        size = strategy.num_replicas_in_sync
        print(f"round {world.round} size {size} from step {first}", flush=True)

    def write(path: str) -> None:
        if world.rank == 0:
            model.save(Path(path, "model.keras"))

    def save(step: int) -> None:
        checkpointer.save(step, write)

    def save_if_due(batch: int, logs: object) -> None:
        step = first + batch + 1
        if step % CHECKPOINT_STEPS == 0:
            save(step)

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    images = images[order].astype("float32") / 16
    labels = labels[order]
    stop = ElasticJob(save=save, samples=BATCH // world.size, total=total, agree=any_rank)
    due = keras.callbacks.LambdaCallback(on_train_batch_end=save_if_due)
    if first < total:
        remaining = Digits(images[:TRAINED], labels[:TRAINED], first, total)
        model.fit(remaining, epochs=1, shuffle=False, verbose=0, callbacks=[due, stop])
    if stop.stopped:
        raise SystemExit(0)  # the next world continues
    checkpointer.finish(total, write)
    if world.rank == 0:
        guessed = np.asarray(model(images[TRAINED:])).argmax(axis=1)
        accuracy = float((guessed == labels[TRAINED:]).mean())
        print(f"finished: {total} steps, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
