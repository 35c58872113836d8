"""A callback for Hugging Face: `Trainer(…, callbacks=[elasticjob.hf.ElasticJob()])`.

It needs `transformers` with PyTorch; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

from elasticjob._agent_connection import agent_connection
from elasticjob._process import check_not_alone
from elasticjob.agreement import can_stop_together, should_stop_together
from elasticjob.commit import may_commit
from elasticjob.progress import confirm_stop, report_step, should_stop
from elasticjob.world import world


class ElasticJob(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Reports every step and the logged metrics; on a stop saves, confirms and ends `train`.

        trainer = Trainer(model, arguments, callbacks=[elasticjob.hf.ElasticJob()])
        trainer.train(resume_from_checkpoint=newest)

    A model whose loss the Trainer would multiply by the number of processes is refused at its first
    step: set `model.accepts_loss_kwargs = False` before `Trainer(model, …)`.

    A checkpoint of the trainer, also one of its `save_steps`, is skipped while a process may not
    write it (`elasticjob.may_commit`).

    If `stopped` is true after `train`, the training is not finished, and the script exits with code
    0. The next process continues by `trainer.train(resume_from_checkpoint=True)`.
    """

    def __init__(self, *, every: int = 1) -> None:
        """Configure the callback.

        Args:
            every: the number of steps after which a stop is possible. If other processes
                than those of the world train, or these have several roles, they agree by an
                all-reduce of one number.

        Raises:
            ValueError: `every` is less than 1.
        """
        if every < 1:
            raise ValueError(f"{every=} must be 1 or more")
        self._every = every
        self.stopped = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reset `stopped`, and check that the processes train one model, by the right loss.

        Raises:
            RuntimeError: each process trains alone.
        """
        self.stopped = False
        check_not_alone(args.world_size)
        if agent_connection() is not None and not args.torch_compile:
            from elasticjob._hf_loss import watch_loss  # no other use needs it

            watch_loss(kwargs.get("model"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the step, and stop if any process of the world was asked to."""
        samples = args.train_batch_size * args.gradient_accumulation_steps
        report_step(state.global_step, total=_total(state), samples=samples)
        possible = state.global_step % self._every == 0 and state.global_step != state.max_steps
        if possible and _stop_requested(args.device):
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # it would precede the save and use up its time
        _veto_save(args, control)
        if self.stopped and not control.should_save:
            confirm_stop()  # a stop, even without a checkpoint

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Skip a checkpoint that may not be written."""
        _veto_save(args, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Skip a checkpoint that may no longer be written after an evaluation."""
        _veto_save(args, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Report the trainer's numbers."""
        numbers = {
            name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))
        }
        report_step(state.global_step, total=_total(state), metrics=numbers)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Confirm a stop: its checkpoint is saved now."""
        if self.stopped:
            confirm_stop()


def _total(state: Any) -> int | None:
    return state.max_steps if state.max_steps > 0 else None


def _veto_save(args: Any, control: Any) -> None:
    """Cancel the save that follows unless every process may write; saving needs all of them."""
    if control.should_save and _any_process(not may_commit(), args.device):
        control.should_save = False


def _stop_requested(device: Any) -> bool:
    """Return whether the training stops after this step; the same result in all its processes."""
    trains = torch.distributed.get_world_size() if _is_distributed() else 1
    if trains == world().size and can_stop_together():
        return should_stop_together()
    return _any_process(should_stop(), device)


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _any_process(own: bool, device: Any) -> bool:
    """Return whether `own` is true in any process of the training; the same result in all."""
    if not _is_distributed():
        return own
    distributed = torch.distributed
    flag = torch.tensor(int(own), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())
