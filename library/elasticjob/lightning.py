"""A callback for Lightning: `Trainer(…, callbacks=[elasticjob.lightning.ElasticJob(…)])`.

It needs `lightning`; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback  # type: ignore[import-not-found, unused-ignore]

from elasticjob._process import check_not_alone
from elasticjob.agreement import can_stop_together, should_stop_together
from elasticjob.commit import may_commit
from elasticjob.progress import confirm_stop, report_step, should_stop
from elasticjob.world import world


class ElasticJob(Callback):  # type: ignore[misc, unused-ignore]
    """Reports every step with the logged metrics; on a stop saves, confirms and ends `fit`.

        callback = elasticjob.lightning.ElasticJob("/checkpoints/stop.ckpt", samples=32)
        trainer = Trainer(callbacks=[callback])
        trainer.fit(model, data, ckpt_path=newest)

    If `stopped` is true after `fit`, the training is not finished, and the script exits with code
    0. The next process continues by `trainer.fit(…, ckpt_path=checkpoint)`.
    """

    def __init__(
        self, checkpoint: str | os.PathLike[str], *, samples: float = 0, every: int = 1
    ) -> None:
        """Configure the callback.

        Args:
            checkpoint: the file that a stop saves, which all processes of the job can read. It is
                written under another name and renamed if `elasticjob.may_commit()`; a URL or a
                folder is written in place.
            samples: the samples that this process trains in a step.
            every: the number of steps after which a stop is possible. If other processes
                than those of the world train, or these have several roles, they agree by an
                all-reduce of one number.

        Raises:
            ValueError: `every` is less than 1.
        """
        if every < 1:
            raise ValueError(f"{every=} must be 1 or more")
        self._checkpoint = os.fspath(checkpoint)
        self._samples = samples
        self._every = every
        self._step = 0
        self._total: int | None = None
        self.stopped = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Determine the first step and the total of steps.

        Raises:
            RuntimeError: each process trains alone.
        """
        self.stopped = False
        check_not_alone(trainer.world_size)
        _skip_trained_batches(trainer.fit_loop)
        self._step = trainer.global_step
        total = trainer.estimated_stepping_batches  # infinite without a limit
        self._total = int(total) if 0 < total < float("inf") else None

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report a finished step, and stop if any process was asked to."""
        step = trainer.global_step
        if step == self._step:
            return  # the batch is only accumulated
        self._step = step
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        report_step(step, total=self._total, samples=self._samples, metrics=metrics)
        if step % self._every != 0 or step == self._total:
            return
        if _stop_requested(trainer):
            self.stopped = True
            trainer.should_stop = True
            trainer.fit_loop.min_epochs = 0  # a stop does not wait for minima
            trainer.fit_loop.epoch_loop.min_steps = 0
            self._save(trainer)  # in mid-epoch, so the next process trains the rest
            confirm_stop()

    def _save(self, trainer: Any) -> None:
        """Save the checkpoint, and make it final if this process may still commit."""
        if not trainer.strategy.reduce_boolean_decision(may_commit()):
            return
        if "://" in self._checkpoint or Path(self._checkpoint).is_dir():
            trainer.save_checkpoint(self._checkpoint)  # cannot be replaced at once
            return
        # the same for all ranks: a strategy may write a folder
        part = f"{self._checkpoint}.{world().round}.part"
        trainer.save_checkpoint(part)
        if trainer.is_global_zero and may_commit():
            Path(part).replace(self._checkpoint)


def _skip_trained_batches(fit_loop: Any) -> None:
    """Skip the batches of the epoch that were trained before the checkpoint.

    Lightning trains as many batches as are left of the epoch, but begins with the first ones again.
    Loaders with a state continue by themselves.
    """
    trained = fit_loop.epoch_loop.batch_progress.current.processed
    fetcher = fit_loop._data_fetcher
    stateful = any(hasattr(each, "load_state_dict") for each in fit_loop._combined_loader.flattened)
    if stateful or (fetcher.length is not None and trained >= fetcher.length):
        return
    for _ in range(trained):
        next(fetcher)
    fetcher.fetched -= trained  # Lightning adds them


def _stop_requested(trainer: Any) -> bool:
    """Return whether the training stops after this step; the same result in all its processes."""
    if trainer.world_size == world().size and can_stop_together():
        return should_stop_together()
    return bool(trainer.strategy.reduce_boolean_decision(should_stop(), all=False))
