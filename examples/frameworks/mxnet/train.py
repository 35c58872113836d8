"""Trains hand-written digits with MXNet's parameter servers by a changing number of workers.

DMLC_ROLE selects what a process does:
- The scheduler and the servers run inside `import mxnet`, which does not return.
- The workers train. A server adds up the gradients of all workers (`dist_sync`), and each worker
  applies the sum. So all workers have the same parameters, and one of them saves. By another sum
  they agree on the step at which they stop.

A step has the same batch in every world, and each worker trains a part of it. So the result does
not depend on the number of workers.

Environment: STEPS (2000), CHECKPOINT_DIR (a folder that all workers share).
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from pathlib import Path

import elasticjob
import numpy as np

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=FutureWarning)
import mxnet as mx  # type: ignore[import-not-found]  # noqa: E402 (servers and scheduler do not return)

TRAINED = 1500
BATCH = 60
SEED = 1
HIDDEN = 64
LEARNING_RATE = 0.2
SAVE_STEPS = 100


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels from scikit-learn's file."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = np.loadtxt(path, np.float32, delimiter=",")
    table = np.random.default_rng(SEED).permutation(table)
    return table[:, :-1] / 16, table[:, -1]


class Training:
    """The parameters, the steps and samples they were trained with, and their checkpoint."""

    def __init__(self, folder: Path, features: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "newest.npz"
        rng = np.random.default_rng(SEED)
        sizes = [(features, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
        values = [rng.normal(0, 0.1, size) for size in sizes]
        self.step = 0
        self.samples = 0
        if self._file.exists():
            saved = np.load(self._file)
            self.step = int(saved["step"])
            self.samples = int(saved["samples"])
            values = [saved[f"parameter{n}"] for n in range(len(sizes))]
        self.parameters = [mx.nd.array(value) for value in values]
        for parameter in self.parameters:
            parameter.attach_grad()

    def save(self) -> None:
        """Write a checkpoint. It counts only if this process still belongs to the present world."""
        part = self._file.with_name(f"round-{elasticjob.world().round}-{os.getpid()}.part.npz")
        arrays = {f"parameter{n}": value.asnumpy() for n, value in enumerate(self.parameters)}
        np.savez(part, step=self.step, samples=self.samples, **arrays)
        if elasticjob.may_commit():
            part.replace(self._file)

    def forward(self, images: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return the logits."""
        first, first_bias, second, second_bias = self.parameters
        return mx.nd.dot(mx.nd.relu(mx.nd.dot(images, first) + first_bias), second) + second_bias


def main() -> None:
    """Train as a worker."""
    total = int(os.environ.get("STEPS", "2000"))
    images, labels = load_digits()
    world = elasticjob.world()
    folder = Path(os.environ.get("CHECKPOINT_DIR", "/checkpoints"), world.job)
    training = Training(folder, images.shape[1])
    store = mx.kv.create("dist_sync")
    worker = f"worker {store.rank} of {store.num_workers}"
    print(f"round {world.round}: {worker} from step {training.step}", flush=True)
    sums = [mx.nd.zeros(parameter.shape) for parameter in training.parameters]
    about = mx.nd.zeros((3,))
    store.init([*map(str, range(len(sums))), "about"], [*sums, about])
    while training.step < total:
        chosen = np.random.default_rng((SEED, training.step)).integers(0, TRAINED, BATCH)
        mine = chosen[store.rank :: store.num_workers]
        with mx.autograd.record():
            guessed = mx.nd.log_softmax(training.forward(mx.nd.array(images[mine])))
            loss = -mx.nd.pick(guessed, mx.nd.array(labels[mine])).sum() / BATCH
        loss.backward()
        for number, (parameter, summed) in enumerate(zip(training.parameters, sums, strict=True)):
            store.push(str(number), parameter.grad)
            store.pull(str(number), out=summed)
            parameter[:] = parameter - LEARNING_RATE * summed
        store.push("about", mx.nd.array([1, len(mine), elasticjob.should_stop()]))
        store.pull("about", out=about)
        workers, samples, stop = map(int, about.asnumpy())
        training.step += 1
        training.samples += samples
        metrics = {"workers": float(workers)}
        elasticjob.report_step(training.step, total=total, samples=len(mine), metrics=metrics)
        if store.rank == 0 and (stop or training.step % SAVE_STEPS == 0 or training.step == total):
            training.save()
        if stop:
            print(f"round {world.round}: stopped after step {training.step}", flush=True)
            elasticjob.confirm_stop()
            return
    guesses = training.forward(mx.nd.array(images[TRAINED:])).asnumpy().argmax(axis=1)
    accuracy = float((guesses == labels[TRAINED:]).mean())
    metrics = {"accuracy": accuracy, "samples": float(training.samples)}
    elasticjob.report_step(total, total=total, metrics=metrics)
    print(f"finished: {training.samples} samples, test accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
