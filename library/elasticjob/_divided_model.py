"""Describes the tensors of a model and its optimizers, and fills those of another world's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _torch_tensors as trees

Live = dict[int, torch.Tensor]
"""Tensors by their numbers."""


@dataclass(frozen=True)
class Leaf:
    """Stands for a tensor in a tree.

    Attributes:
        number: the number of the tensor.
        shape: the shape of the whole tensor.
        dtype: the type of its elements.
        device: the type of its device.
        placements: how it is divided; None if it is no DTensor.
    """

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    placements: tuple[Any, ...] | None


def describe(model: Any, optimizers: Sequence[Any]) -> tuple[trees.Tree, Live]:
    """Return the state as a tree without tensors, and the tensors.

    An optimizer that has not made a step has none: nothing here makes them.
    """
    live: Live = {}

    def leaf(tensor: torch.Tensor) -> Leaf:
        live[len(live)] = tensor
        placements = getattr(tensor, "placements", None)
        kind = tensor.device.type
        return Leaf(len(live) - 1, tuple(tensor.shape), tensor.dtype, kind, placements)

    parts = (model.state_dict(), [optimizer.state_dict() for optimizer in optimizers])
    return trees._map(parts, leaf), live


class Filling:
    """The tensors of a new model and its optimizers, which are filled from a described state.

    Attributes:
        live: the tensors, by the numbers of the description.
    """

    def __init__(self, tree: trees.Tree, model: Any, optimizers: Sequence[Any]) -> None:
        """Prepare the tensors; raises ValueError if the state is another model's."""
        self.live: Live = {}
        self._model = model
        self._optimizers = optimizers
        of_model, of_optimizers = tree
        present = model.state_dict()
        if (differing := present.keys() ^ of_model.keys()) or len(of_optimizers) != len(optimizers):
            raise ValueError(
                f"the state is of another model or other optimizers (differing: "
                f"{sorted(differing)[:3]}): build the same ones in each world"
            )
        self._of_model = {
            key: self._take(each, present[key]) if isinstance(each, Leaf) else each
            for key, each in of_model.items()
        }
        self._of_optimizers = [
            self._prepared(each, optimizer)
            for each, optimizer in zip(of_optimizers, optimizers, strict=True)
        ]

    def finish(self) -> None:
        """Load the filled tensors, and all other values."""
        self._model.load_state_dict(self._of_model)
        for optimizer, state in zip(self._optimizers, self._of_optimizers, strict=True):
            optimizer.load_state_dict(state)
            for number, parameter in enumerate(_parameters(optimizer)):
                if number in state["state"]:  # it may have cast them to the parameter's type
                    optimizer.state[parameter].update(state["state"][number])

    def _prepared(self, tree: trees.Tree, optimizer: Any) -> trees.Tree:
        parameters = _parameters(optimizer)
        of_parameters = tree["state"].items()
        state = {number: self._made(each, parameters[number]) for number, each in of_parameters}
        return {**tree, "state": state, "param_groups": self._made(tree["param_groups"], None)}

    def _made(self, tree: trees.Tree, parameter: torch.Tensor | None) -> trees.Tree:
        """Return a tree with tensors instead of its leaves."""
        return trees._map(tree, lambda leaf: self._take(leaf, _like(leaf, parameter)), Leaf)

    def _take(self, leaf: Leaf, tensor: torch.Tensor) -> torch.Tensor:
        self.live[leaf.number] = tensor
        return tensor


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters in the order in which `state_dict` counts them."""
    return list(chain.from_iterable(group["params"] for group in optimizer.param_groups))


def _like(leaf: Leaf, parameter: torch.Tensor | None) -> torch.Tensor:
    """Return a tensor for a leaf, divided as the parameter to which it belongs."""
    if leaf.placements is None or parameter is None:
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    if tuple(parameter.shape) == leaf.shape:
        return torch.zeros_like(parameter, dtype=leaf.dtype, requires_grad=False)
    from torch.distributed import tensor

    return tensor.zeros(
        leaf.shape,
        dtype=leaf.dtype,
        device_mesh=parameter.device_mesh,
        placements=leaf.placements,
    )
