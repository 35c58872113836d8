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

_COUNT = "num_items_in_batch"


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
            _watch_loss(kwargs.get("model"))

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


class _Watched(torch.Tensor):  # type: ignore[misc, unused-ignore]
    """A tensor that knows whether it was read."""

    was_read = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for each in args:
                if isinstance(each, cls):
                    each.was_read = True
            return func(*args, **(kwargs or {}))


def _watch_loss(model: Any) -> None:
    """Let the first forward pass fail if the Trainer would multiply the loss by the world's size.

    The Trainer (since transformers 4.46) passes the count of all ranks' items to each model whose
    `forward` has `**kwargs`, and expects a loss that the model has divided by it. So it multiplies
    the loss by the number of processes, and does not divide it by the accumulated batches. A model
    that ignores the count returns a mean instead. Its loss, its gradients and an update by SGD then
    grow with the world. Many models of transformers are of this kind, such as those for the
    classification of sequences. A model with the attribute `accepts_loss_kwargs` has told the
    Trainer what it does.
    """
    if hasattr(model, "accepts_loss_kwargs") or not isinstance(model, torch.nn.Module):
        return
    counts: list[_Watched] = []

    def before(_module: Any, args: Any, kwargs: Any) -> Any:
        count = kwargs.get(_COUNT)
        if not torch.is_tensor(count) or "labels" not in kwargs:
            return None  # the loss is not the model's
        counts.append(count.as_subclass(_Watched))
        return args, {**kwargs, _COUNT: counts[-1]}

    def after(module: Any, _args: Any, _output: Any) -> None:
        for each in handles:
            each.remove()
        if counts and not counts[-1].was_read:
            raise RuntimeError(
                f"the loss of {type(module).__name__} ignores {_COUNT}, so the Trainer would "
                "multiply loss and gradients by the number of processes and of accumulated "
                "batches: set model.accepts_loss_kwargs = False before Trainer(model, …)"
            )

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after),
    ]
