"""Keeps the state of a training: the live one, and a copy of the last commit in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _torch_tensors as tensors
from elasticjob._committed_shards import CommittedShards, Offer, Opened
from elasticjob.shards import AnyShard, Shards


@dataclass(frozen=True)
class Commit:
    """A state to which the training can return.

    Attributes:
        round: of the world in which it was made, or given to this process; 0: it never trained.
        step: its number of steps.
        tree: the state: a copy of each state_dict, and the pickled values.
    """

    round: int
    step: int
    tree: tensors.Tree


class State:
    """What all ranks have in common: models, optimizers, the step and other values.

        state = State(model=network, optimizer=optimizer, samples=0)
        state.step += 1
        state.samples += 32

    Attributes:
        step: the number of steps that are trained.
    """

    step: int

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
        for name in parts:
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(f"{name!r} cannot be the name of a part: choose another one")
        self._parts = {name: part for name, part in parts.items() if _has_state(part)}
        self._values = ["step", *(name for name in parts if name not in self._parts)]
        self._data_sets: Opened = {}
        self._committed = Commit(0, step, None)
        for name, part in {**parts, "step": step}.items():
            setattr(self, name, part)

    if TYPE_CHECKING:  # the parts are attributes of any type

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def open(
        self, opener: Callable[..., Shards[AnyShard]], name: str, *arguments: Any, **options: Any
    ) -> CommittedShards[AnyShard]:
        """Open a data set whose shards count as done when a commit contains them.

        All processes open it before the first world.

        Args:
            opener: `elasticjob.shards`, `text_shards` or `stream_shards`.
            name: of the data set.
            arguments: of the opener.
            options: of the opener.
        """
        opened = CommittedShards(opener(name, *arguments, **options))
        self._data_sets[name] = opened
        return opened

    # --- called by worlds()

    def _offer(self) -> dict[str, Offer]:
        return {name: opened.offer() for name, opened in self._data_sets.items()}

    def _commit(self, round_: int, offers: Sequence[dict[str, Offer]]) -> None:
        for name, opened in self._data_sets.items():
            opened.commit([each[name] for each in offers])
        self._keep(round_)

    def _keep(self, round_: int) -> None:
        """Make the live state the last commit."""
        values = {name: getattr(self, name) for name in self._values}
        shards = {name: opened.committed for name, opened in self._data_sets.items()}
        live = {name: part.state_dict() for name, part in self._parts.items()}
        tree = {"parts": tensors.copy(live), "values": pickle.dumps((values, shards))}
        self._committed = Commit(round_, int(self.step), tree)

    def _return_to_commit(self) -> None:
        self._return_to(self._committed.tree)

    def _return_to(self, tree: tensors.Tree) -> None:
        """Load a committed state, and take the shards again that it does not contain."""
        copied = tensors.copy(tree["parts"])
        for name, part in self._parts.items():
            part.load_state_dict(copied[name])
            if hasattr(part, "zero_grad"):  # the gradients are those of a step that does not count
                part.zero_grad()
        values, shards = pickle.loads(tree["values"])  # noqa: S301 (of the same program)
        for name, value in values.items():
            setattr(self, name, value)
        for name, opened in self._data_sets.items():
            opened.return_to(shards.get(name, {}))

    def _synchronize(
        self, round_: int, device: torch.device, stored: Callable[[], tensors.Tree | None]
    ) -> None:
        """Give all ranks the newest committed state of any rank.

        The state of a process that has trained in a later world is newer, whatever its step: the
        others have continued without it.

        Args:
            round_: of this world.
            device: of communicated tensors.
            stored: returns the state in the newest checkpoint; rank 0 calls it if no process has
                trained yet.
        """
        mine = torch.tensor([self._committed.round, self._committed.step], device=device)
        found = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(found, mine)
        commits = [(int(each[0]), int(each[1])) for each in found]
        newest = max(commits)
        source = commits.index(newest)
        if not newest[0]:
            source = 0
            tree = stored() if dist.get_rank() == 0 else None
            if tree is not None:
                self._return_to(tree)
            self._keep(0)
        tree = self._committed.tree
        if len(set(commits)) > 1 or not newest[0]:
            tree = tensors.broadcast(tree, source, device)
        self._return_to(tree)
        self._keep(round_)


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
