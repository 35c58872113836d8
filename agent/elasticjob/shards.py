"""Parts of a data set, leased one by one and accounted for: each is trained once, however the workers come and go.

A thread leases ahead, so taking a shard does not wait for the master; what is leased and not done when this process
ends goes to others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob._socket import AgentError, connection

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Shard:
    """Samples `start` (included) to `end` (excluded) of an epoch's order; `id` counts over all epochs from 0."""

    id: int
    epoch: int
    start: int
    end: int


class _Source(Protocol):
    """Who hands shards out."""

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask for shards, or report them."""


def shards(
    name: str,
    *,
    size: int,
    shard_size: int,
    epochs: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    prefetch: int = 64,
) -> Shards:
    """Open a data set for the whole job; every process that opens it gives the same numbers.

    Args:
        name: the data set's name within the job.
        size: number of samples.
        shard_size: samples in a shard; the last one of an epoch may be smaller.
        epochs: how often each sample is trained.
        shuffle: whether the order of an epoch is to differ from the last one's; kept with the data set for its users.
        seed: what the order of the epochs is derived from.
        prefetch: shards leased ahead; let it last for as long as the master may be away.

    Raises:
        AgentError: the data set is already open with other numbers, or the numbers make no sense.
    """
    if size < 1 or shard_size < 1 or epochs < 1 or prefetch < 1:
        raise ValueError(f"{size=}, {shard_size=}, {epochs=} and {prefetch=} must be 1 or more")
    source: _Source = connection() or _Alone(size=size, shard_size=shard_size, epochs=epochs)
    fields = {"size": size, "shard_size": shard_size, "epochs": epochs, "shuffle": shuffle, "seed": seed}
    answer = source.call("create_dataset", dataset=name, **fields).result()
    return Shards(source, name, count=int(answer["shards"]), prefetch=prefetch)


class Shards:
    """A data set's shards, for this process. Iterate over it, and tell `done` of each shard."""

    def __init__(self, source: _Source, name: str, *, count: int, prefetch: int) -> None:
        """Start leasing ahead."""
        self._source = source
        self._name = name
        self._count = count
        self._prefetch = prefetch
        self._changed = threading.Condition()
        self._ready: deque[Shard] = deque()
        self._held: set[int] = set()
        """Leased, and not yet reported: a restarted master may have forgotten it and lease it to us again."""
        self._done: list[int] = []
        self._reporting = False
        self._reports = 0
        self._finished = False
        self._closed = False
        self._error: AgentError | None = None
        for target in (self._lease, self._report):
            threading.Thread(target=target, name=f"shards{target.__name__}", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of shards of all epochs together."""
        return self._count

    @property
    def finished(self) -> bool:
        """Whether no shard is left to lease, here or anywhere."""
        return self._finished and not self._ready

    def __iter__(self) -> Iterator[Shard]:
        """Yield shards until the data set is done, by this process and all others."""
        while (shard := self.take()) is not None:
            yield shard

    def take(self, timeout: float | None = None) -> Shard | None:
        """Return the next shard; None if the data set is done, or there is none within the time (0: at once)."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._finished or self._error, timeout)
            if self._ready:
                shard = self._ready.popleft()
                self._changed.notify_all()
                return shard
            if self._error:
                raise self._error
            return None

    def done(self, *finished: Shard) -> None:
        """Report shards as trained for good: when their effect can no longer be lost, such as after a checkpoint."""
        with self._changed:
            self._done.extend(shard.id for shard in finished)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until all that is done has been reported; tells whether it has within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._done or self._reporting), timeout)

    def close(self) -> None:
        """Stop leasing. The shards that are left go back when the process ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _lease(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) <= self._prefetch // 2)
                if self._closed:
                    return
                wanted, reports = self._prefetch - len(self._ready), self._reports
            try:
                answer = self._source.call("lease_shards", dataset=self._name, count=wanted).result()
            except AgentError as error:
                self._fail(error)
                return
            with self._changed:
                given = [Shard(**shard) for shard in answer["shards"]]
                self._ready.extend(shard for shard in given if shard.id not in self._held)
                self._held.update(shard.id for shard in given)
                self._finished = bool(answer["finished"])
                self._changed.notify_all()
                if self._finished:
                    return
                if not answer["shards"]:
                    # The rest is being trained, here or elsewhere, and comes back if a worker is lost.
                    self._changed.wait_for(lambda: self._closed or self._reports != reports, _POLL_SECONDS)  # noqa: B023

    def _report(self) -> None:
        while True:
            with self._changed:
                self._reporting = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._done) or self._closed)
                if not self._done:
                    return
                done, self._done = self._done, []
                self._reporting = True
            try:
                self._source.call("report_shards", dataset=self._name, done=done).result()
            except AgentError as error:
                self._fail(error)
                return
            with self._changed:
                self._held.difference_update(done)
                self._reports += 1

    def _fail(self, error: AgentError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


class _Alone:
    """The shards of a process without an agent."""

    def __init__(self, *, size: int, shard_size: int, epochs: int) -> None:
        self._per_epoch = -(-size // shard_size)
        self._count = self._per_epoch * epochs
        self._size = size
        self._shard_size = shard_size
        self._next = 0
        self._open: set[int] = set()

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Answer at once."""
        answer: Future[dict[str, Any]] = Future()
        answer.set_result(self._answer(name, fields))
        return answer

    def _answer(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        if name == "create_dataset":
            return {"shards": self._count}
        if name == "lease_shards":
            ids = range(self._next, min(self._next + fields["count"], self._count))
            self._next = ids.stop
            self._open.update(ids)
            finished = self._next == self._count and not self._open
            return {"shards": list(self._shards(ids)), "finished": finished}
        self._open.difference_update(fields["done"])
        return {"stale": []}

    def _shards(self, ids: Iterable[int]) -> Iterator[dict[str, int]]:
        for number in ids:
            epoch, position = divmod(number, self._per_epoch)
            start = position * self._shard_size
            yield {"id": number, "epoch": epoch, "start": start, "end": min(start + self._shard_size, self._size)}
