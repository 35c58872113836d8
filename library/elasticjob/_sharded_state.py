"""Keeps a divided state, as of FSDP, in the memory of the ranks: each part in two of them.

A commit copies the part of each rank, and sends the copy to another rank, of another node where
possible. Only when all ranks have both do they drop the commit before. A new world begins at the
newest commit of which its ranks hold all parts together, and divides it anew.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _process
from elasticjob._committed_state import Commit, Committed, CommittedState, Stored
from elasticjob._divided_model import Filling, describe
from elasticjob._sharding import Piece, Place, peers
from elasticjob._state_choice import Choice, Held, Inventory, newest
from elasticjob._storage_errors import is_of_storage
from elasticjob._torch_holdings import Holding, leave_to_next, take_over
from elasticjob._torch_parts import Part, give, pack, reshard
from elasticjob._world_group import Group, Meeting
from elasticjob.progress import should_stop
from elasticjob.world import members

log = logging.getLogger("elasticjob")

_LATE_IMPORTS = ("torch._dynamo", "torch.distributed.checkpoint")
"""FSDP imports them in the first world of a process, for seconds in which all ranks would wait."""

_FLUSH_SECONDS = 10.0
_SETTLE_SECONDS = 0.2
"""The members of one scale-in are asked to leave one after the other; the time between them."""

Build = Callable[[Any], tuple[Any, Any]]


class ShardedState(CommittedState):
    """What the ranks have together: a model and optimizers that are divided among them, as by FSDP.

        def build(mesh):
            model = fully_shard(Network(), mesh=mesh)
            return model, torch.optim.AdamW(model.parameters())

        state = ShardedState(build, samples=0)
        state.samples += 32  # the same in all ranks

    In each world the state has the model and the optimizer that `build` has made for it.

    Attributes:
        step: the number of steps that are trained.
        model: the model of the present world.
        optimizer: the optimizer of the present world, or several.
    """

    _file = "parts.json"
    _divided = True

    def __init__(self, build: Build, *, step: int = 0, **values: Any) -> None:
        """Name the parts.

        Args:
            build: makes the model and its optimizer, or a list of optimizers, the same ones in each
                world, given a device mesh of all ranks. All ranks call it. Use that mesh, or give
                the dimensions of another one names that no other world has had.
            step: the number of steps that are trained.
            values: other values, the same in all ranks, which can be pickled. The state has them as
                attributes.

        Raises:
            ValueError: the name of a value is one of the state's own.
            ImportError: this PyTorch is too old.
        """
        for name in ("model", "optimizer"):
            if name in values:
                raise ValueError(f"{name!r} is what `build` returns: choose another name")
        super().__init__(step=step, **values)
        try:
            for module in _LATE_IMPORTS:
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"ShardedState needs PyTorch 2.6 or later, and this is {torch.__version__}: use a "
                "later one, or State with a model that each rank has"
            ) from error
        self._build = build
        self._held: dict[str, Holding] = {}
        self._initial = b""
        self._told = False
        """The others know the name of the checkpoint that rank 0 saves now."""
        self.model: Any = None
        self.optimizer: Any = None

    # --- called by worlds()

    def _keep(self, round_: int) -> None:
        number = self._committed.number + 1 if round_ == self._committed.round else 0
        self._committed = Commit(round_, number, int(self.step), None)
        shards = {name: opened.committed for name, opened in self._data_sets.items()}
        tree, live = describe(self.model, self._optimizers())
        part = pack(self._head(tree, shards), live)
        holding = Holding(self._meeting.size, {self._meeting.rank: part})
        self._held[_key(self._committed)] = holding

    def _secure(self, meeting: Meeting, group: Group, *, ends: bool) -> bool:
        leaving = self._leaving() if ends else set()
        key = _key(self._committed)
        holding = self._held[key]
        if meeting.size > 1:
            mine = holding.parts[meeting.rank]
            targets = peers(self._places, leaving)
            holding.parts.update(give(mine, targets, group.device))  # type: ignore[attr-defined]
            group.any_rank(False)  # all ranks have their copies
        self._held = {key: holding}
        return len(leaving) == meeting.size

    def _leaving(self) -> set[int]:
        """Return the ranks that leave the job with this commit."""
        found: list[bool] = []
        while True:
            before = found
            found = self._gather(should_stop())
            if found == before or not any(found):
                return {rank for rank, leaves in enumerate(found) if leaves}
            time.sleep(_SETTLE_SECONDS)

    def _hand_over(self) -> None:
        leave_to_next(self._held)

    def _return_to_commit(self) -> None:
        """Do nothing: the next world chooses the commit, and its ranks have other parts."""

    def _synchronize(
        self, meeting: Meeting, group: Group, stored: Callable[[], Stored | None]
    ) -> None:
        self._meeting = meeting
        self._group = group
        self._places = [Place(member.node, member.pod) for member in members()]
        if not self._initial:
            self._initial = self._head(None, {})
            self._held = take_over()
        if self.model is not None:
            self.model = self.optimizer = None
            gc.collect()  # their memory is free before the next ones take theirs
        self.model, self.optimizer = self._build(self._mesh())
        held = {
            key: Held(holding.ranks, frozenset(holding.parts), complete=True)
            for key, holding in self._held.items()
        }
        gathered = self._gather((Inventory("memory", held), _process.first_round()))
        choice = newest([inventory for inventory, _ in gathered], after="")
        accounts: dict[str, bytes] = {}
        if choice is not None:
            parts = self._held[choice.name].parts if choice.name in self._held else {}
            self._held = {choice.name: self._held[choice.name]} if parts else {}
        else:
            if any(inventory.checkpoints for inventory, _ in gathered) and meeting.rank == 0:
                log.warning(
                    "the members have no commit with all parts: those of a rank and of the one "
                    "with its copies are lost; the training continues from the newest checkpoint"
                )
            choice, parts, accounts = self._begin_divided(meeting, stored)
        if accounts:
            self._end_reports()
        shards = self._fill(choice, parts) if choice else self._begin_again()
        first_round = min(each for _, each in gathered)
        for name in accounts.keys() & self._data_sets.keys():
            self._data_sets[name].restore(accounts[name], first_round=first_round)
        for name, opened in self._data_sets.items():
            opened.return_to(shards.get(name, {}))
        self._keep(meeting.round)
        self._secure(meeting, group, ends=False)

    def _begin_divided(
        self, meeting: Meeting, stored: Callable[[], Stored | None]
    ) -> tuple[Choice | None, dict[int, Part], dict[str, bytes]]:
        """Read the newest checkpoint: each rank some of its parts. Without one, begin again."""
        found = stored() if meeting.rank == 0 else None
        found = self._gather(found)[0]
        self._held = {}
        if found is None:
            return None, {}, dict.fromkeys(self._data_sets, b"")
        index = json.loads(found.data)
        sources = tuple(part % meeting.size for part in range(index["parts"]))
        assert self._storage is not None
        parts = {
            part: Part.parse(self._storage.read(index["name"], _file_of(part)))
            for part, source in enumerate(sources)
            if source == meeting.rank
        }
        return Choice(index["name"], sources, fetch=True), parts, found.accounts

    def _end_reports(self) -> None:
        """Let the master answer all reports of shards that a checkpoint may not contain.

        It must not get them when the data sets have returned to it.
        """
        sets = self._data_sets.values()
        while any(self._gather(not all(each.flush(_FLUSH_SECONDS) for each in sets))):
            log.warning("the shards that were trained since the checkpoint are not reported yet")

    def _begin_again(self) -> dict[str, Committed]:
        """Begin with the values of rank 0, and the model and optimizer as they were built."""
        return self._load_head(self._gather(self._initial)[0])[1]

    def _fill(self, choice: Choice, parts: dict[int, Part]) -> dict[str, Committed]:
        """Fill the model and the optimizer of this world from a commit; return its shards."""
        rank = self._meeting.rank
        mine = [part for part, source in enumerate(choice.sources) if source == rank]
        heads = {part: parts[part].head for part in mine if part == 0}
        layouts = {part: parts[part].pieces for part in mine}
        gathered = self._gather((heads, layouts))
        (head,) = chain.from_iterable(heads.values() for heads, _ in gathered)
        every: dict[int, Sequence[Piece]] = {}
        for _, found in gathered:
            every.update(found)
        tree, shards = self._load_head(head)
        filling = Filling(tree, self.model, self._optimizers())
        reshard(parts, every, choice.sources, filling.live, self._group.device)  # type: ignore[attr-defined]
        filling.finish()
        return shards

    def _mesh(self) -> Any:
        """Return the mesh of this world.

        PyTorch takes meshes of the same ranks for the same one, also if this process had another
        rank in the earlier one, and keeps that one for later tensors. So its name is another.
        """
        # Here, as earlier versions of PyTorch lack it, and elasticjob.torch has more for them.
        from torch.distributed.device_mesh import (  # type: ignore[import-not-found, unused-ignore]
            init_device_mesh,
        )

        kind = self._group.device.type  # type: ignore[attr-defined]
        name = f"round{self._meeting.round}"
        return init_device_mesh(kind, (self._meeting.size,), mesh_dim_names=(name,))

    def _optimizers(self) -> list[Any]:
        several = isinstance(self.optimizer, list | tuple)
        return list(self.optimizer) if several else [self.optimizer]

    def _head(self, tree: Any, shards: dict[str, Committed]) -> bytes:
        return pickle.dumps((tree, {name: getattr(self, name) for name in self._names}, shards))

    def _load_head(self, head: bytes) -> tuple[Any, dict[str, Committed]]:
        tree, values, shards = pickle.loads(head)  # noqa: S301 (of the same program)
        for name, value in values.items():
            setattr(self, name, value)
        return tree, shards

    def _gather(self, mine: Any) -> list[Any]:
        return self._group.gather(mine) if self._meeting.size > 1 else [mine]

    # --- checkpoints in the storage

    def _write(self, name: str) -> None:
        self._told = True
        if not self._write_part(name):
            raise OSError("a rank could not write its part, and its log says why")

    def _follow_write(self) -> bool:
        return self._write_part("")

    def _end_write(self) -> None:
        if not self._told:
            self._gather("")
        self._told = False

    def _write_part(self, name: str) -> bool:
        """Write this rank's part into the checkpoint that rank 0 names, if it does."""
        name = self._gather(name)[0]
        if not name:
            return False
        assert self._storage is not None
        meeting = self._meeting
        problem: Exception | None = None
        try:
            part = self._held[_key(self._committed)].parts[meeting.rank]
            self._storage.write(name, _file_of(meeting.rank), part.dump())
            if meeting.rank == 0:
                index = {"name": name, "parts": meeting.size}
                self._storage.write(name, self._file, json.dumps(index).encode())
        except Exception as error:
            if not is_of_storage(error):
                raise
            log.warning("the part of rank %d is not saved: %s", meeting.rank, error)
            problem = error
        return not any(self._gather(problem is not None))


def _key(commit: Commit) -> str:
    """Return a name, which is greater for a later commit."""
    return f"{commit.round:010}-{commit.number:010}"


def _file_of(part: int) -> str:
    return f"part-{part:05}.pt"
