"""Data loaders for PyTorch, and training in processes that continue when the world changes.

For `framework: pytorch` with `onWorldChange: Notify`:

    network = Network()
    state = elasticjob.torch.State(model=network, optimizer=SGD(network.parameters(), 0.1))
    for world in elasticjob.torch.worlds(state, folder="/checkpoints"):
        with world:
            model = DistributedDataParallel(network)
            while state.step < total:
                train_step(model)
                state.step += 1
                world.commit(total=total)

It needs PyTorch 2.1 or later; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

import io
import os
import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.utils.data  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _torch_tensors as tensors
from elasticjob._committed_state import Committed, CommittedState
from elasticjob._division import Part
from elasticjob._sharded_state import ShardedState
from elasticjob._torch_group import Meetings
from elasticjob._world_session import Session
from elasticjob._worlds import World, enter_worlds
from elasticjob.batches import GlobalBatches


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


__all__ = ["DataLoader", "ShardedState", "State", "World", "worlds"]


class _Indices:
    """The batch sampler: gives the samples of parts, and keeps the parts until they are loaded."""

    def __init__(self, batches: GlobalBatches) -> None:
        self._batches = batches
        self.loading: deque[Part] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        self.loading.clear()
        for part in self._batches.parts():
            self.loading.append(part)
            yield part.indices


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[misc, unused-ignore]
    """PyTorch's DataLoader for global batches. An iteration is the rest of an epoch.

        loader = elasticjob.torch.DataLoader(dataset, batches, num_workers=4)
        for samples in loader:
            train(samples, scale=loader.part.scale, apply=loader.part.last)

    Attributes:
        part: the part whose samples were returned last.
    """

    part: Part

    def __init__(self, dataset: Any, batches: GlobalBatches, **options: Any) -> None:
        """Load the samples of `batches`.

        Args:
            dataset: returns the sample of a number, such as a map-style data set of PyTorch or a
                `datasets.Dataset` of Hugging Face.
            batches: the global batches of this process.
            options: arguments for PyTorch's DataLoader, without those of its batches and their
                order.
        """
        indices = _Indices(batches)
        super().__init__(dataset, batch_sampler=indices, **options)
        if not options.get("in_order", True):
            raise ValueError("in_order is False; the order of the batches is that of all processes")
        self.batches = batches
        self._loading = indices.loading

    def __iter__(self) -> Iterator[Any]:
        """Yield the samples of each part, as collated."""
        for samples in super().__iter__():
            self.part = self._loading.popleft()
            self.batches.deliver(self.part.batch, last=self.part.last)
            yield samples
        self.batches.end_epoch()


def worlds(
    state: State | ShardedState,
    *,
    backend: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    keep: int = 3,
    timeout: float = 300.0,
) -> Iterator[World]:
    """Join each world of the job, one after the other, until the training is finished.

        for world in elasticjob.torch.worlds(state, folder="/checkpoints"):
            with world:
                train(state, world)  # calls world.commit()

    A world begins with the default process group, and with the newest committed state in all ranks.
    Train in `with world:`. When the block ends without a change of the world, the training is
    finished. A process that was asked to stop ends by SystemExit.

    Args:
        state: the model and optimizer that all ranks share, or that are divided among them.
        backend: the group's backend. Default: nccl where there is a GPU, else gloo.
        folder: a folder, or a URL, that all members share. The training continues at its newest
            checkpoint if no process has the state, as after a suspension; without a folder it
            begins again. Rank 0 saves one when it leaves, at the end, and at commits with `save`.
            Of a divided state each rank saves its part, at the end, at such commits, and when all
            ranks leave together.
        keep: the number of checkpoints to keep.
        timeout: seconds for all processes to meet, and for each collective. Make it longer than
            `drainSeconds`, after which the agent replaces a process that does not come.

    Raises:
        TimeoutError: not all processes have come.
        RuntimeError: PyTorch is older than 2.1, or a collective has failed and no other world was
            announced.
        AgentError: the agent is unreachable.
    """
    meetings = Meetings(
        backend=backend or ("nccl" if torch.cuda.is_available() else "gloo"), timeout=timeout
    )
    yield from enter_worlds(Session(state, meetings, folder, keep, timeout))
