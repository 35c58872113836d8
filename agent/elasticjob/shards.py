"""Parts of a data set, leased one by one and accounted for: each ends done or failed, however the workers come and go.

A thread leases ahead, so taking a shard does not wait for the master; another one reports. What is leased and not
reported when this process ends goes to others.
"""

from __future__ import annotations

import base64
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from elasticjob_api.limits import MAX_SHARD_MESSAGE_CHARACTERS

from elasticjob._agent_connection import AgentError

log = logging.getLogger("elasticjob")

_POLL_SECONDS = 0.5
_SILENT_SECONDS = 20.0


@dataclass(frozen=True)
class Shard:
    """Samples `start` (included) to `end` (excluded) of a part in one epoch; `id` counts over all epochs from 0."""

    id: int
    epoch: int
    start: int
    end: int
    part: int = 0


AnyShard = TypeVar("AnyShard", bound=Shard)


class Source(Protocol):
    """Who hands shards out: the agent, or without one this process itself."""

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask for shards, or report them."""


class Shards(Generic[AnyShard]):
    """A data set's shards, for this process. Iterate over it, and tell `done` of each shard."""

    def __init__(self, source: Source, name: str, make: Callable[..., AnyShard], *, count: int, prefetch: int) -> None:
        """Start leasing ahead; `make` makes a shard of its fields."""
        self._source = source
        self._name = name
        self._make = make
        self._count = count
        self._prefetch = prefetch
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._ready: deque[AnyShard] = deque()
        self._held: set[int] = set()
        """Leased and not reported: a restarted master may have forgotten it and lease it to us again."""
        self._ended: dict[str, list[int]] = {"done": [], "failed": [], "returned": []}
        self._why = ""
        self._reporting = False
        self._news = 0
        self._finished = False
        self._closed = False
        self._error: AgentError | None = None
        for target in (self._lease, self._report):
            threading.Thread(target=target, name=f"shards{target.__name__}", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of shards of all epochs together; of a stream: of those that were there at the opening."""
        return self._count

    @property
    def finished(self) -> bool:
        """Whether no shard is left to lease, here or anywhere."""
        return self._finished and not self._ready

    def __iter__(self) -> Iterator[AnyShard]:
        """Yield shards until the data set is done, by this process and all others."""
        while (shard := self.take()) is not None:
            yield shard

    def take(self, timeout: float | None = None) -> AnyShard | None:
        """Return the next shard; None if the data set is done, or there is none within the time (0: at once)."""
        self._check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._finished or self._error or self._closed, timeout)
            if self._ready:
                shard = self._ready.popleft()
                self._changed.notify_all()
                return shard
            if self._error:
                raise self._error
            return None

    def done(self, *finished: Shard) -> None:
        """Report shards as trained for good: when their effect can no longer be lost, such as after a checkpoint."""
        self._end("done", finished)

    def fail(self, shard: Shard, why: str) -> None:
        """Give a shard up, such as for a damaged file: it ends as failed and nobody gets it again."""
        self._end("failed", (shard,), why)

    def flush(self, timeout: float) -> bool:
        """Wait until all that is done has been reported; tells whether it has within the time.

        Raises:
            AgentError: it cannot be any more, as for `checkpoint`.
        """
        self._check_process()
        with self._changed:
            self._changed.wait_for(lambda: not self._unreported or self._error, timeout)
            if self._unreported and self._error:
                raise self._error
            return not self._unreported

    def checkpoint(self, timeout: float | None = None) -> bytes:
        """Return what is done, by all processes, to be kept with the model's checkpoint and given to `restore`.

        Everything this process has said to be done is in it. What the others have said is in it too if they have
        called `flush` before; so let all of them do that, and then one of them call this.

        Raises:
            TimeoutError: the master did not answer within the time.
            AgentError: the agent is gone.
        """
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            reported = self._changed.wait_for(lambda: not self._unreported or self._error, timeout)
            if self._error:
                raise self._error
        if not reported:
            raise TimeoutError(f"the shards of {self._name} could not be reported within {timeout} s")
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        answer = self._source.call("get_checkpoint", dataset=self._name).result(left)
        return base64.b64decode(answer["state"])

    def extend(self, size: int, *, final: bool = False) -> int:
        """Tell that a stream has so many samples now, in all, or that it has ended; returns how many there are.

        Raises:
            AgentError: it is no stream, or it had ended with fewer.
        """
        self._check_process()
        answer = self._source.call("extend_dataset", dataset=self._name, size=size, final=final).result()
        with self._changed:
            self._news += 1
            self._changed.notify_all()
        return int(answer["size"])

    def close(self) -> None:
        """Stop leasing and give back what was not taken. What was taken can still be reported."""
        self._check_process()
        with self._changed:
            self._closed = True
            self._ended["returned"] += [shard.id for shard in self._ready]
            self._ready.clear()
            self._changed.notify_all()

    @property
    def _unreported(self) -> bool:
        return self._reporting or any(self._ended.values())

    def _check_process(self) -> None:
        """A forked process has none of the threads: it would wait for ever."""
        if os.getpid() != self._pid:
            raise AgentError(
                f"data set {self._name} was opened by process {self._pid} and is used in process {os.getpid()}, forked "
                "from it: open it in the process that takes the shards, or hand shards over from the one that opened it"
            )

    def _end(self, how: str, ended: Sequence[Shard], why: str = "") -> None:
        self._check_process()
        with self._changed:
            self._ended[how].extend(shard.id for shard in ended)
            self._why = why[:MAX_SHARD_MESSAGE_CHARACTERS] or self._why
            self._changed.notify_all()

    # --- threads -----------------------------------------------------------------------------------------------------

    def _lease(self) -> None:
        hungry_since = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) <= self._prefetch // 2)
                if self._closed:
                    return
                wanted, news = self._prefetch - len(self._ready), self._news
            try:
                answer = self._source.call("lease_shards", dataset=self._name, count=wanted).result()
            except AgentError as error:
                self._break(error)
                return
            with self._changed:
                self._accept([self._make(**shard) for shard in answer["shards"]], finished=bool(answer["finished"]))
                if self._finished:
                    return
                if answer["shards"]:
                    hungry_since = None
                else:
                    hungry_since = self._tell_limit(hungry_since, int(answer.get("most", 0)))
                    # The rest is being trained, here or elsewhere, and comes back if a worker is lost.
                    self._changed.wait_for(lambda: self._closed or self._news != news, _POLL_SECONDS)  # noqa: B023

    def _accept(self, given: Sequence[AnyShard], *, finished: bool) -> None:
        new = [shard for shard in given if shard.id not in self._held]
        self._held.update(shard.id for shard in new)
        if self._closed:
            self._ended["returned"] += [shard.id for shard in new]
        else:
            self._ready.extend(new)
        self._finished = finished
        self._changed.notify_all()

    def _tell_limit(self, hungry_since: float | None, most: int) -> float:
        """Say once what is wrong when nothing more comes because too much is held."""
        now = time.monotonic()
        if hungry_since is None:
            return now
        if not self._ready and 0 < most <= len(self._held) and now - hungry_since > _SILENT_SECONDS:
            log.warning(
                "data set %s: %d shards are taken and not reported; with so many workers and data sets a worker may "
                "hold %d. Report them done more often, or make shards larger.",
                self._name,
                len(self._held),
                most,
            )
            return float("inf")
        return hungry_since

    def _report(self) -> None:
        while True:
            with self._changed:
                self._reporting = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: any(self._ended.values()) or (self._closed and not self._held))
                if not any(self._ended.values()):
                    return
                ended, why = self._ended, self._why
                self._ended, self._why = {how: [] for how in ended}, ""
                self._reporting = True
            try:
                self._source.call("report_shards", dataset=self._name, message=why, **ended).result()
            except AgentError as error:
                self._break(error)
                return
            with self._changed:
                self._held.difference_update(*ended.values())
                self._news += 1

    def _break(self, error: AgentError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
