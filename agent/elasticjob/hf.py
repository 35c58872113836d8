"""Hugging Face.

`Trainer(…, callbacks=[elasticjob.hf.ElasticJob()])` reports steps and stops when the job asks for
it.
Needs `transformers` with PyTorch; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

from elasticjob.commit import may_commit
from elasticjob.progress import confirm_stop, report_step, should_stop


class ElasticJob(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Reports every step and what the trainer logs.

    On a stop has a checkpoint saved, confirms and ends `train`. Every checkpoint of the trainer,
    also of its own `save_steps`, is skipped while a process may not write it
    (`elasticjob.may_commit`): a checkpoint that is written late would undo what the others have
    trained meanwhile.

    After `train`, a script looks at `stopped`: if it is true, this is not the end of the training,
    and the script exits with code 0. The next process goes on with
    `trainer.train(resume_from_checkpoint=True)`.
    """

    def __init__(self, *, every: int = 1) -> None:
        """Configure the callback.

        Args:
            every: how many steps apart the processes agree on whether to stop: one number all-reduced each time.

        Raises:
            ValueError: `every` is less than 1.
        """
        if every < 1:
            raise ValueError(f"{every=} must be 1 or more")
        self._every = every
        self.stopped = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reset `stopped`."""
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the step, and stop if any process of the world was asked to."""
        samples = args.train_batch_size * args.gradient_accumulation_steps
        report_step(state.global_step, total=_total(state), samples=samples)
        if state.global_step % self._every == 0 and _any_process(should_stop(), args.device):
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = (
                False  # it would come before the save, and take more time than there is
            )
        _veto_save(args, control)
        if self.stopped and not control.should_save:
            confirm_stop()  # a stop without a checkpoint is not the end of the training either

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Skip a checkpoint that may not be written."""
        _veto_save(args, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Skip a checkpoint that may not be written any more.

        An evaluation comes before it, and may take long.
        """
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


def _any_process(own: bool, device: Any) -> bool:
    """Return whether `own` is true in any process of the world; the same result in all."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return own
    flag = torch.tensor(int(own), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())
