"""Trains hand-written digits with MultiWorkerMirroredStrategy by a changing number of workers.

Each worker has a copy of the variables, and an all-reduce adds up the gradients. What makes it
elastic:
- The global batch is constant. Each worker trains a part of it, so the result does not depend on
  their number.
- `elasticjob.Checkpointer` stops all workers after the same step, saves, and finds the checkpoint
  from which the next world continues.

Environment: EPOCHS (100), CHECKPOINT_DIR (a folder that all workers share).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import elasticjob

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]
from sklearn.datasets import load_digits

TRAINED = 1500  # of the 1,797 images; the rest are test images
BATCH = 125
SEED = 1
HIDDEN = 64
LEARNING_RATE = 0.3
STEPS_PER_EPOCH = TRAINED // BATCH
CHECKPOINT_STEPS = 100
LOG_STEPS = 25


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, shuffled: other people wrote the last ones than the first."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    return images[order].astype(np.float32) / 16, labels[order]


def batch_of(step: int) -> np.ndarray:
    """Return the images of one step, the same in all workers. Each epoch has another order."""
    epoch, position = divmod(step, STEPS_PER_EPOCH)
    order = np.random.default_rng((SEED, epoch)).permutation(TRAINED)
    return order[position * BATCH : (position + 1) * BATCH]


class Training:
    """The state of the training, which checkpoints contain, and its steps."""

    def __init__(self, strategy: Any) -> None:
        self.step = 0
        self.samples = 0  # of all workers
        self._strategy = strategy
        self._images, self._labels = read_digits()
        rng = np.random.default_rng(SEED)
        sizes = [(self._images.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
        with strategy.scope():
            self._params = [
                tf.Variable(rng.normal(0, 0.1, size).astype(np.float32)) for size in sizes
            ]
        self._update = tf.function(self._update_once, reduce_retracing=True)
        self._any = tf.function(self._sum)

    def restore(self, folder: str) -> None:
        """Continue from a checkpoint."""
        with np.load(Path(folder, "state.npz")) as saved:
            self.step = int(saved["step"])
            self.samples = int(saved["samples"])
            for number, param in enumerate(self._params):
                param.assign(saved[f"param{number}"])

    def save(self, folder: str) -> None:
        """Write a checkpoint, in rank 0."""
        if elasticjob.world().rank == 0:
            params = {f"param{number}": param.numpy() for number, param in enumerate(self._params)}
            np.savez(Path(folder, "state.npz"), step=self.step, samples=self.samples, **params)

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any worker."""
        return bool(self._any(tf.constant(int(mine))) > 0)

    def train_step(self) -> tuple[float, int]:
        """Train on this worker's part of a batch; return the batch's loss and the part's size.

        All workers must call it together.
        """
        world = elasticjob.world()
        mine = batch_of(self.step)[world.rank :: world.size]
        loss, count = self._update(tf.constant(self._images[mine]), tf.constant(self._labels[mine]))
        self.step += 1
        self.samples += int(count)
        return float(loss) / BATCH, len(mine)

    def accuracy(self) -> float:
        """Return the share of the test images that are recognized."""
        guessed = self._forward(self._images[TRAINED:]).numpy().argmax(axis=1)
        return float((guessed == self._labels[TRAINED:]).mean())

    def _forward(self, images: Any) -> Any:
        weights, bias, weights_out, bias_out = self._params
        return tf.nn.relu(images @ weights + bias) @ weights_out + bias_out

    def _update_once(self, images: Any, labels: Any) -> tuple[Any, Any]:
        def gradients_of(images: Any, labels: Any) -> tuple[Any, ...]:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, self._forward(images)
                )
                loss = tf.reduce_sum(losses)
            return loss, tf.size(labels), *tape.gradient(loss, self._params)

        mine = self._strategy.run(gradients_of, args=(images, labels))
        loss, count, *gradients = (self._strategy.reduce("SUM", each, axis=None) for each in mine)
        for param, gradient in zip(self._params, gradients, strict=True):
            param.assign_sub(LEARNING_RATE / BATCH * gradient)
        return loss, count

    def _sum(self, number: Any) -> Any:
        numbers = self._strategy.run(tf.identity, args=(number,))
        return self._strategy.reduce("SUM", numbers, axis=None)


def main() -> None:
    """Train the remaining steps."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    world = elasticjob.world()
    first = world.rank == 0
    here = f"round {world.round} size {strategy.num_replicas_in_sync}"
    training = Training(strategy)
    total = int(os.environ.get("EPOCHS", "100")) * STEPS_PER_EPOCH
    folder = Path(os.environ.get("CHECKPOINT_DIR", "/checkpoints"), world.job)
    checkpointer = elasticjob.Checkpointer(folder, any_rank=training.any_rank)
    if checkpointer.found:
        training.restore(checkpointer.found)
    if first:
        print(f"{here} from step {training.step}", flush=True)
    try:
        while training.step < total:
            loss, samples = training.train_step()
            if first and training.step % LOG_STEPS == 0:
                print(f"step {training.step}/{total} {here} loss {loss:.4f}", flush=True)
            checkpointer.step(
                training.step,
                training.save,
                due=training.step % CHECKPOINT_STEPS == 0,
                total=total,
                samples=samples,
                metrics={"loss": loss},
            )
    except SystemExit:
        if first:
            print(f"{here} stopped after step {training.step}", flush=True)
        raise
    checkpointer.finish(training.step, training.save)
    if first:
        accuracy = training.accuracy()
        metrics = {"accuracy": accuracy, "trained": training.samples}
        elasticjob.report_step(total, total=total, metrics=metrics)
        done = f"{training.step} steps, {training.samples} samples"
        print(f"finished: {done}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
