"""A callback for Keras: `model.fit(…, callbacks=[elasticjob.keras.ElasticJob(…)])`.

It needs Keras 3 with any backend; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras  # type: ignore[import-not-found, unused-ignore]

from elasticjob.agreement import can_stop_together, should_stop_together
from elasticjob.progress import confirm_stop, report_step, should_stop
from elasticjob.world import world


class ElasticJob(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Reports every step; on a stop saves, confirms and ends `fit`.

        callback = elasticjob.keras.ElasticJob(save=save, samples=32)
        model.fit(data, callbacks=[callback])
        if callback.stopped:
            raise SystemExit(0)

    If `stopped` is true after `fit`, the training is not finished, and the script exits with code
    0.
    """

    def __init__(
        self,
        *,
        save: Callable[[int], None],
        samples: float = 0,
        agree: Callable[[bool], bool] | None = None,
        first_step: int | None = None,
        total: int | None = None,
    ) -> None:
        """Configure the callback.

        Args:
            save: saves a checkpoint of a step, in every process, before the stop is confirmed. Let
                rank 0 write another file and rename it if `elasticjob.may_commit()`.
            samples: the samples that this process trains in a step: its batch size.
            agree: returns whether its argument is true in any process, at the same step in all, for
                example by an all-reduce. By default the processes of the world agree through the
                master (`should_stop_together`). Needed if others than these train, or if they have
                several roles.
            first_step: the steps finished before this `fit`; by default those of a restored
                optimizer.
            total: all steps of the job; by default those of this `fit` and those before it.

        Raises:
            ValueError: `agree` is missing.
        """
        super().__init__()
        if agree is None and not can_stop_together():
            raise ValueError(
                f"agree is not given: {world().size} processes have to stop after the same step"
            )
        self._save = save
        self._samples = samples
        self._agree = agree
        self._first_step = first_step
        self._total = total
        self._step = 0
        self._batch = -1
        self.stopped = False

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Determine the first step and the total of steps."""
        step = self._first_step
        if step is None:  # `int` fails for a variable on several devices
            step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self._step = step
        self.stopped = False
        epochs = self.params.get("epochs")
        steps = self.params.get("steps")
        if self._total is None and epochs and steps:
            self._total = self._step + epochs * steps

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Begin to count the batches of the epoch."""
        self._batch = -1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report the steps since the last call; Keras can train several batches at once."""
        steps = batch - self._batch
        self._batch = batch
        self._step += steps
        report_step(
            self._step,
            total=self._total,
            samples=steps * self._samples,
            metrics=_numbers(logs or {}),
        )
        if self._step != self._total and self._stop_requested():
            self.stopped = True
            self.model.stop_training = True
            self._save(self._step)  # now: a validation that follows could use up the time
            confirm_stop()

    def _stop_requested(self) -> bool:
        """Return whether the training stops after this step; the same result in all processes."""
        return should_stop_together() if self._agree is None else self._agree(should_stop())


def _numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are a single number; a metric can be an array."""
    return {name: float(value) for name, value in logs.items() if getattr(value, "ndim", 0) == 0}
