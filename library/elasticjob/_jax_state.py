"""Copies the state of a training with JAX into host memory."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from elasticjob._committed_state import Committed, CommittedState, Offer


@dataclass(frozen=True)
class Tree:
    """A copied state.

    Attributes:
        head: pickled, without the contents of arrays.
        arrays: their bytes.
    """

    head: bytes
    arrays: list[Any]


class State(CommittedState):
    """What all ranks have in common: parameters, the optimizer's state, the step, other values.

        state = State(params=params, opt_state=optimizer.init(params), samples=0)
        state.params, state.opt_state = train_step(state.params, state.opt_state, batch)
        state.step += 1

    When a world begins, the arrays are NumPy's, with the same contents in all ranks.

    Attributes:
        step: the number of steps that are trained.
    """

    _file = "state.pickle"

    def __init__(self, *, step: int = 0, **parts: Any) -> None:
        """Name the parts.

        Args:
            step: the number of steps that are trained.
            parts: pytrees of replicated arrays and of other values, which can be pickled. The state
                has them as attributes.

        Raises:
            ValueError: the name of a part is one of the state's own.
        """
        super().__init__(step=step, **parts)

    def _offer(self) -> dict[str, Offer]:
        # A step whose collective has failed raises here, before this rank agrees to commit.
        jax.block_until_ready(self._values())
        return super()._offer()

    def _copy(self, shards: dict[str, Committed]) -> Tree:
        host = jax.tree.map(_on_host, self._values())
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps((host, shards), protocol=5, buffer_callback=buffers.append)
        return Tree(head, [np.array(buffer.raw(), dtype=np.uint8) for buffer in buffers])

    def _load(self, tree: Tree) -> dict[str, Committed]:
        arrays = [each.copy() for each in tree.arrays]
        values, shards = pickle.loads(tree.head, buffers=arrays)  # noqa: S301 (of the same program)
        for name, value in values.items():
            setattr(self, name, value)
        found: dict[str, Committed] = shards
        return found

    def _dump(self) -> bytes:
        return pickle.dumps(self._committed.tree, protocol=5)

    def _parse(self, data: bytes) -> Tree:
        tree: Tree = pickle.loads(data)  # noqa: S301 (of the same program)
        return tree

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}


def _on_host(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
