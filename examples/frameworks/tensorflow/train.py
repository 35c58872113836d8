"""Trains hand-written digits with TensorFlow's parameter servers by a changing number of workers.

TF_CONFIG selects what a process does:
- Workers and parameter servers each run a server, which executes the chief's requests.
- The chief trains: it schedules steps on the workers, which read and change the variables on the
  parameter servers. After a stop request it saves the variables and ends. Only then the others are
  stopped. Parameter servers continue when workers join and leave (`onWorldChange: Keep`, the
  default of role ps).

Environment: STEPS (2000), CHECKPOINT_DIR (a folder that chief and parameter servers share).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import elasticjob

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]
from sklearn.datasets import load_digits

TRAINED = 1500
BATCH = 60
SEED = 1
HIDDEN = 64
LEARNING_RATE = 0.05
STEPS_AT_A_TIME = 20  # scheduled together; after them the chief checks for a stop request
SAVE_STEPS = 400


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, shuffled: other people wrote the last ones than the first."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    return images[order].astype(np.float32) / 16, labels[order]


class Checkpoints:
    """Checkpoints of the variables on the parameter servers. A file names the last complete one."""

    def __init__(self, folder: Path, **tracked: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._latest = folder / "latest"
        self._checkpoint = tf.train.Checkpoint(**tracked)

    def restore(self) -> None:
        """Restore the last complete checkpoint, if one exists."""
        if self._latest.exists():
            self._checkpoint.read(str(self._folder / self._latest.read_text())).assert_consumed()

    def save(self, step: int) -> None:
        """Write a checkpoint. It counts only if this process still belongs to the present world."""
        name = f"round-{elasticjob.world().round}-step-{step}"
        self._checkpoint.write(str(self._folder / name))
        part = self._folder / f"latest-{os.getpid()}.part"
        part.write_text(name)
        if elasticjob.may_commit():
            part.replace(self._latest)


def serve(resolver: Any) -> None:
    """Execute the chief's requests until this process is stopped."""
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()


def train(resolver: Any, folder: Path, total: int) -> None:
    """Schedule the remaining steps."""
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    world = elasticjob.world()
    images, labels = read_digits()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        rng = np.random.default_rng(SEED)
        sizes = [(images.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
        params = [tf.Variable(rng.normal(0, 0.1, size).astype(np.float32)) for size in sizes]
        # Each step adds 1 to it on the parameter server, so it counts the steps that the variables
        # contain.
        steps_done = tf.Variable(0, dtype=tf.int64, trainable=False)

    def forward(batch: Any) -> Any:
        return tf.nn.relu(batch @ params[0] + params[1]) @ params[2] + params[3]

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any, batch_labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch_labels, forward(batch))
            loss = tf.reduce_mean(losses)
        for param, gradient in zip(params, tape.gradient(loss, params), strict=True):
            param.assign_sub(LEARNING_RATE * gradient)
        steps_done.assign_add(1)
        return loss

    checkpoints = Checkpoints(folder, params=params, steps_done=steps_done)
    checkpoints.restore()
    step = int(steps_done.numpy())
    print(f"round {world.round}: {workers} workers from step {step}", flush=True)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    while step < total:
        rng = np.random.default_rng((SEED, step))
        steps = min(STEPS_AT_A_TIME, total - step)
        for _ in range(steps):
            batch = rng.integers(0, TRAINED, BATCH)
            loss = coordinator.schedule(train_step, args=(images[batch], labels[batch]))
        coordinator.join()
        step += steps
        metrics = {"loss": float(loss.fetch()), "workers": float(workers)}
        elasticjob.report_step(step, total=total, samples=steps * BATCH, metrics=metrics)
        stop = elasticjob.should_stop()
        if stop or step % SAVE_STEPS == 0 or step == total:
            checkpoints.save(step)
        if stop:
            print(f"round {world.round}: stopped after step {step}", flush=True)
            elasticjob.confirm_stop()
            sys.stdout.flush()
            os._exit(0)  # the coordinator's threads may wait for workers that do not exist any more
    guessed = np.asarray(forward(images[TRAINED:])).argmax(axis=1)
    accuracy = float((guessed == labels[TRAINED:]).mean())
    done = int(steps_done.numpy())
    metrics = {"accuracy": accuracy, "steps_done": float(done)}
    elasticjob.report_step(total, total=total, metrics=metrics)
    print(f"finished: {done} steps, test accuracy {accuracy:.4f}", flush=True)


def main() -> None:
    """Run the server or the training, as TF_CONFIG selects."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    else:
        folder = Path(os.environ.get("CHECKPOINT_DIR", "/checkpoints"), elasticjob.world().job)
        train(resolver, folder, int(os.environ.get("STEPS", "2000")))


if __name__ == "__main__":
    main()
