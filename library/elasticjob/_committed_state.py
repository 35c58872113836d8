"""Keeps the state of a training: the live one, and a copy of the last commit in memory."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from elasticjob import _process
from elasticjob._world_group import Group, Meeting
from elasticjob.checkpoint_storage import CheckpointStorage
from elasticjob.shards import AnyShard, Shard, Shards

Committed = dict[str, set[int]]
"""The shards in the committed model of which the master may not know it yet, by process."""


def _new_name() -> str:
    """Return a name of this process that none has had which has ever trained in this job."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Offer:
    """The shards of a process in a commit; the master may not know them yet."""

    process: str
    shards: tuple[int, ...]


class CommittedShards(Generic[AnyShard]):
    """A data set's shards. Iterate over it, and call `done` for each shard before the commit.

    A shard that was not `done` at a commit which ends a world is taken again in the next one.

    A commit that some processes have made may be lost: if one process dies during it, the others
    may return to the commit before. So a shard is reported as done one commit after the one that
    contains it. A process that returns to a commit takes the shards again that the commit does not
    contain.
    """

    def __init__(self, inner: Shards[AnyShard]) -> None:
        """Take shards from an open data set."""
        self.inner = inner
        self._taken: dict[int, AnyShard] = {}
        self._done: list[int] = []
        self._committed: list[AnyShard] = []
        """The shards of commits that other processes may not have made."""
        self._reported: set[int] = set()
        """The shards whose report the master may not have answered."""
        self._again: deque[AnyShard] = deque()
        self.committed: Committed = {}
        self._process = _new_name()

    def __len__(self) -> int:
        """Return the number of shards of all epochs."""
        return len(self.inner)

    def __iter__(self) -> Iterator[AnyShard]:
        """Yield shards until the data set is done, by this process and all others."""
        while (shard := self.take()) is not None:
            yield shard

    @property
    def finished(self) -> bool:
        """Whether all shards are done or failed."""
        return self.inner.finished and not self._again and not self._taken

    def take(self, timeout: float | None = None) -> AnyShard | None:
        """Return the next shard; None if the data set is done or `timeout` seconds have passed."""
        while (shard := self._next(timeout)) is not None:
            if not any(shard.id in shards for shards in self.committed.values()):
                self._taken[shard.id] = shard
                return shard
            # It is in the model: the process that has trained it was lost before its report.
            self.inner.done(shard)
        return None

    def done(self, *finished: Shard) -> None:
        """Count shards as trained; the next commit contains them."""
        self._done += [shard.id for shard in finished]

    def fail(self, shard: Shard, why: str) -> None:
        """Report a shard as failed, for example for a damaged file: it is not leased again."""
        self._taken.pop(shard.id, None)
        self.inner.fail(shard, why)

    # --- called by the state

    def offer(self) -> Offer:
        """Return the shards that this process adds to the commit."""
        if self.inner.flush(0):
            self._reported = set()
        committed = (shard.id for shard in self._committed)
        return Offer(self._process, (*self._reported, *committed, *self._done))

    def commit(self, offers: Sequence[Offer]) -> None:
        """Commit the shards that all processes have offered."""
        self.committed.update((offer.process, set(offer.shards)) for offer in offers)
        self.report()  # each process has made the commit before this one
        self._committed = [self._taken.pop(number) for number in self._done]
        self._done = []
        if len(offers) == 1:
            self.report()

    def report(self) -> None:
        """Report the shards of the last commit, which all processes have made."""
        self.inner.done(*self._committed)
        self._reported.update(shard.id for shard in self._committed)
        self._committed = []

    def return_to(self, committed: Committed) -> None:
        """Return to a commit that contains these shards: take the others again."""
        self.committed = {process: set(shards) for process, shards in committed.items()}
        in_model = set().union(*committed.values())
        held = [*self._committed, *self._taken.values()]
        self._committed = [shard for shard in held if shard.id in in_model]
        self._again += [shard for shard in held if shard.id not in in_model]
        self._taken = {}
        self._done = []

    def restore(self, account: bytes, *, first_round: int) -> None:
        """Return to the account of a checkpoint; see `Shards.restore`."""
        self.inner.restore(account, first_round=first_round)
        self._taken = {}
        self._done = []
        self._committed = []
        self._reported = set()
        self._again.clear()
        # The checkpoint may name shards of this process whose reports it does not contain.
        self._process = _new_name()

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the master has answered all reports."""
        return self.inner.flush(timeout)

    def _next(self, timeout: float | None) -> AnyShard | None:
        return self._again.popleft() if self._again else self.inner.take(timeout)


Opened = dict[str, CommittedShards[Any]]


@dataclass(frozen=True)
class Stored:
    """A framework's checkpoint, and what its model has trained of each data set, by name."""

    data: bytes
    accounts: dict[str, bytes]


@dataclass(frozen=True)
class Commit:
    """A state to which the training can return.

    Attributes:
        round: the round in which it was made or given to this process; 0 if it never trained.
        number: the number of the commit in this world, whatever a program counts as its steps.
        step: its number of steps.
        tree: the copy of the state, as the framework makes it.
    """

    round: int
    number: int
    step: int
    tree: Any


class CommittedState:
    """What all ranks have in common. A framework says how its parts are copied.

    Attributes:
        step: the number of steps that are trained.
    """

    step: int
    _file: ClassVar[str]
    """The name of a checkpoint's file."""
    _divided: ClassVar[bool] = False
    """Each rank has a part of it, so all ranks write a checkpoint."""
    _storage: CheckpointStorage | None = None
    """Where checkpoints are."""

    def __init__(self, *, step: int = 0, **parts: Any) -> None:
        """Name the parts, which are its attributes.

        Raises ValueError if the name of a part is one of the state's own.
        """
        for name in parts:
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(f"{name!r} cannot be the name of a part: choose another one")
        self._names = ["step", *parts]
        self._data_sets: Opened = {}
        self._committed = Commit(0, 0, step, None)
        for name, part in {**parts, "step": step}.items():
            setattr(self, name, part)

    if TYPE_CHECKING:  # the parts are attributes of any type

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def open(
        self, opener: Callable[..., Shards[AnyShard]], name: str, *arguments: Any, **options: Any
    ) -> CommittedShards[AnyShard]:
        """Open a data set whose shards count as done when a commit contains them.

        All processes open it before the first world. If no process has the state, the data set
        returns to the checkpoint at which the training continues, or to its beginning.

        Args:
            opener: `elasticjob.shards`, `text_shards` or `stream_shards`.
            name: the data set's name within the job.
            arguments: further arguments for the opener.
            options: keyword arguments for the opener, but `restore`.

        Raises:
            ValueError: `restore` is given.
        """
        if "restore" in options:
            raise ValueError("restore: the state restores its data sets; leave it out")
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
        shards = {name: opened.committed for name, opened in self._data_sets.items()}
        number = self._committed.number + 1 if round_ == self._committed.round else 0
        self._committed = Commit(round_, number, int(self.step), self._copy(shards))

    def _secure(self, meeting: Meeting, group: Group, *, ends: bool) -> bool:
        """Make the last commit safe; return whether it has to be saved, as all ranks leave."""
        return False

    def _hand_over(self) -> None:
        """Leave to the next process of this member what the others may not have."""

    def _return_to_commit(self) -> None:
        self._return_to(self._committed.tree)

    def _return_to(self, tree: Any) -> None:
        """Load a committed state, and take the shards again that it does not contain."""
        shards = self._load(tree)
        for name, opened in self._data_sets.items():
            opened.return_to(shards.get(name, {}))

    def _synchronize(
        self, meeting: Meeting, group: Group, stored: Callable[[], Stored | None]
    ) -> None:
        """Give all ranks the newest committed state of any rank.

        The state of a process that has trained in a later world is newer, whatever its step: the
        others have continued without it. If no process has one, rank 0 calls `stored`, which
        returns the newest checkpoint.
        """
        mine = (self._committed.round, self._committed.number)
        gathered = group.gather((mine, _process.first_round()))
        commits = [commit for commit, _ in gathered]
        newest = max(commits)
        source = commits.index(newest)
        accounts: dict[str, bytes] = {}
        if not newest[0]:
            source = 0
            accounts = group.gather(self._begin(stored) if meeting.rank == 0 else {})[0]
        tree = self._committed.tree
        if len(set(commits)) > 1 or not newest[0]:
            tree = group.broadcast(tree, source)
        # After the last collective: if one fails, the data sets are as they were.
        first_round = min(each for _, each in gathered)
        for name in accounts.keys() & self._data_sets.keys():
            self._data_sets[name].restore(accounts[name], first_round=first_round)
        self._return_to(tree)
        self._keep(meeting.round)

    def _begin(self, stored: Callable[[], Stored | None]) -> dict[str, bytes]:
        """Take the state of the newest checkpoint, or a new one; return its data sets' accounts."""
        found = stored()
        if found is not None:
            self._return_to(self._parse(found.data))
        self._keep(0)
        return dict.fromkeys(self._data_sets, b"") if found is None else found.accounts

    # --- of a framework

    def _copy(self, shards: dict[str, Committed]) -> Any:
        """Return a copy of the live state, with the shards."""
        raise NotImplementedError

    def _load(self, tree: Any) -> dict[str, Committed]:
        """Make a copied state the live one, and return its shards."""
        raise NotImplementedError

    def _write(self, name: str) -> None:
        """Write the files of a checkpoint of the last commit, by this name, into the storage."""
        assert self._storage is not None
        self._storage.write(name, self._file, self._dump())

    def _follow_write(self) -> bool:
        """Write this rank's files of a checkpoint that rank 0 saves; return whether all have."""
        raise NotImplementedError

    def _end_write(self) -> None:
        """End a save in rank 0: if it was given up before `_write`, the others still wait."""

    def _dump(self) -> bytes:
        """Return the file of a checkpoint of the last commit."""
        raise NotImplementedError

    def _parse(self, data: bytes) -> Any:
        """Return the copied state in the file of a checkpoint."""
        raise NotImplementedError
