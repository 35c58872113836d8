"""Refuses models whose loss Hugging Face's Trainer would multiply by the number of processes.

The Trainer (since transformers 4.46) passes `num_items_in_batch` to each model whose `forward` has
`**kwargs`, and expects a loss that the model has divided by this count of all ranks. So it
multiplies the loss by the number of processes, and does not divide it by the accumulated batches. A
model that ignores the number returns a mean instead. Its loss, its gradients and an update by SGD
then grow with the world. Many models of transformers are of this kind, such as those for the
classification of sequences.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

_COUNT = "num_items_in_batch"


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


def watch_loss(model: Any) -> None:
    """Let the first forward pass fail if the model ignores the count of items.

    A model with the attribute `accepts_loss_kwargs` has told the Trainer what it does.
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
