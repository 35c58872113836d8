"""Copies the state of a training with PyTorch."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _torch_tensors as tensors
from elasticjob._committed_shards import Committed
from elasticjob._committed_state import CommittedState


class State(CommittedState):
    """What all ranks have in common: models, optimizers, the step and other values.

        state = State(model=network, optimizer=optimizer, samples=0)
        state.step += 1
        state.samples += 32

    Attributes:
        step: the number of steps that are trained.
    """

    _file = "state.pt"

    def __init__(self, *, step: int = 0, **parts: Any) -> None:
        """Name the parts.

        Args:
            step: the number of steps that are trained.
            parts: objects with `state_dict` and `load_state_dict`, such as models (not wrapped by
                DistributedDataParallel, which belongs to one world), optimizers, schedulers. Other
                parts are values, which can be pickled; the state has them as attributes. Gradients
                are no part: they are zero in a new world.

        Raises:
            ValueError: the name of a part is one of the state's own.
        """
        super().__init__(step=step, **parts)
        self._parts = {name: part for name, part in parts.items() if _has_state(part)}

    def _copy(self, shards: dict[str, Committed]) -> tensors.Tree:
        """Return a copy of each state_dict, and the pickled values."""
        values = {name: getattr(self, name) for name in self._names if name not in self._parts}
        live = {name: part.state_dict() for name, part in self._parts.items()}
        return {"parts": tensors.copy(live), "values": pickle.dumps((values, shards))}

    def _load(self, tree: tensors.Tree) -> dict[str, Committed]:
        copied = tensors.copy(tree["parts"])
        for name, part in self._parts.items():
            part.load_state_dict(copied[name])
            if hasattr(part, "zero_grad"):  # the gradients are those of a step that does not count
                part.zero_grad()
        values, shards = pickle.loads(tree["values"])  # noqa: S301 (of the same program)
        for name, value in values.items():
            setattr(self, name, value)
        found: dict[str, Committed] = shards
        return found

    def _dump(self) -> bytes:
        buffer = io.BytesIO()
        torch.save(self._committed.tree, buffer)
        return buffer.getvalue()

    def _parse(self, data: bytes) -> tensors.Tree:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
