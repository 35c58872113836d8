"""Takes shards for a training whose state returns to its last commit when a process is lost.

A commit that some processes have made may be lost: if one process dies during it, the others may
return to the commit before. So a shard is reported as done one commit after the one that contains
it. A process that returns to a commit takes the shards again that the commit does not contain.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from elasticjob.shards import AnyShard, Shard, Shards

TOKEN = uuid.uuid4().hex
"""Names this process among all that have ever trained in this job."""

Committed = dict[str, set[int]]
"""The shards in the committed model of which the master may not know it yet, by process."""


@dataclass(frozen=True)
class Offer:
    """The shards of one process in a commit.

    Attributes:
        process: the token of the process.
        shards: the numbers of those that it has trained and that the master may not know yet.
    """

    process: str
    shards: tuple[int, ...]


class CommittedShards(Generic[AnyShard]):
    """A data set's shards. Iterate over it, and call `done` for each shard before the commit.

    A shard that was not `done` at a commit which ends a world is taken again in the next one.
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
        return Offer(TOKEN, (*self._reported, *committed, *self._done))

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

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the master has answered all reports."""
        return self.inner.flush(timeout)

    def _next(self, timeout: float | None) -> AnyShard | None:
        return self._again.popleft() if self._again else self.inner.take(timeout)


Opened = dict[str, CommittedShards[Any]]
