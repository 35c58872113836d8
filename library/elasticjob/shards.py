"""Leases the shards of a data set to this process.

Each shard ends done or failed while workers join and leave. One thread leases ahead, so that the
training does not wait for the master; another thread reports. When this process ends, its
unreported shards are leased to other processes.
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

from elasticjob_api.limits import MAX_LEASED_SHARDS, MAX_SHARD_MESSAGE_CHARACTERS

from elasticjob._agent_connection import AgentError

log = logging.getLogger("elasticjob")

_POLL_SECONDS = 0.5
_STARVED_SECONDS = 20.0


@dataclass(frozen=True)
class Shard:
    """Samples `start` (included) to `end` (excluded) of a part in one epoch.

        shard = data.take()
        train(range(shard.start, shard.end))
        data.done(shard)

    `id` counts over all epochs from 0.
    """

    id: int
    epoch: int
    start: int
    end: int
    part: int = 0


AnyShard = TypeVar("AnyShard", bound=Shard)


class ShardSource(Protocol):
    """Answers calls about data sets: the agent, or without one this process itself."""

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Make a call, such as `lease_shards`; returns its answer as a future."""


class Shards(Generic[AnyShard]):
    """A data set's shards, for this process. Iterate over it, and call `done` for each shard.

        data = elasticjob.shards("train", size=1000, shard_size=100)
        for shard in data:
            train(range(shard.start, shard.end))
            data.done(shard)
        data.flush(timeout=10)

    `elasticjob.shards`, `text_shards` and `stream_shards` open one.
    """

    def __init__(
        self,
        source: ShardSource,
        name: str,
        make: Callable[..., AnyShard],
        *,
        count: int,
        prefetch: int,
    ) -> None:
        """Start leasing ahead; `make` creates a shard from its fields."""
        self._source = source
        self._name = name
        self._make = make
        self._count = count
        self._prefetch = prefetch
        self._waits = False
        """Whether the training waits for a shard."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._ready: deque[AnyShard] = deque()
        self._leased: set[int] = set()
        """The leased and unreported shards. A restarted master may lease one of them again."""
        self._to_report: dict[str, list[int]] = {"done": [], "failed": [], "returned": []}
        self._failure_message = ""
        self._reporting = False
        self._leasing = False
        self._restoring = False
        self._changes = 0
        self._finished = False
        self._closed = False
        self._error: AgentError | None = None
        for target in (self._lease, self._report):
            threading.Thread(target=target, name=f"shards{target.__name__}", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of shards of all epochs; for a stream, of those at its opening."""
        return self._count

    @property
    def finished(self) -> bool:
        """Whether all shards are done or failed."""
        return self._finished and not self._ready

    def __iter__(self) -> Iterator[AnyShard]:
        """Yield shards until the data set is done, by this process and all others."""
        while (shard := self.take()) is not None:
            yield shard

    def take(self, timeout: float | None = None) -> AnyShard | None:
        """Return the next shard; None if the data set is done or `timeout` seconds have passed."""
        self._check_process()
        with self._changed:
            self._waits = not self._ready
            self._changed.wait_for(
                lambda: self._ready or self._finished or self._error or self._closed, timeout
            )
            self._waits = False
            if self._ready:
                shard = self._ready.popleft()
                self._changed.notify_all()
                return shard
            if self._error:
                raise self._error
            return None

    def done(self, *finished: Shard) -> None:
        """Report shards as done, when their effect on the model is safe, as in a checkpoint."""
        self._finish("done", finished)

    def fail(self, shard: Shard, why: str) -> None:
        """Report a shard as failed, for example for a damaged file: it is not leased again."""
        self._finish("failed", (shard,), why)

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all finished shards are reported.

        Returns whether they are.

        Raises:
            AgentError: they can no longer be reported.
        """
        self._check_process()
        with self._changed:
            self._changed.wait_for(lambda: not self._unreported or self._error, timeout)
            if self._unreported and self._error:
                raise self._error
            return not self._unreported

    def checkpoint(self, timeout: float | None = None) -> bytes:
        """Return the account of the shards that all processes have done.

        Save it with the model, and pass it as `restore`. It contains the shards that this process
        has reported as done. It contains those of the other processes if they have called `flush`
        before: let all call `flush`, and then one `checkpoint`.

        Raises:
            TimeoutError: the master did not answer within the time.
            AgentError: the agent is unreachable.
        """
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            reported = self._changed.wait_for(lambda: not self._unreported or self._error, timeout)
            if self._error:
                raise self._error
        if not reported:
            raise TimeoutError(
                f"the shards of {self._name} could not be reported within {timeout} s"
            )
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        answer = self._source.call("get_checkpoint", dataset=self._name).result(left)
        return base64.b64decode(answer["state"])

    def restore(self, state: bytes, *, first_round: int) -> None:
        """Return to the account of a checkpoint in a world in which no process has the state.

        Every process calls it with the same arguments, before it takes a shard.

        Args:
            state: the account; `b""` for the beginning.
            first_round: the earliest round in which one of these processes began.

        Raises:
            AgentError: the account belongs to another data set, or this process is not in the
                present world.
        """
        self._check_process()
        with self._changed:
            self._restoring = True
            self._changed.wait_for(lambda: not self._leasing)
        encoded = base64.b64encode(state).decode()
        try:
            self._source.call(
                "restore_checkpoint", dataset=self._name, state=encoded, first_round=first_round
            ).result()
            with self._changed:  # the leases have ended
                self._ready.clear()
                self._leased.clear()
                self._finished = False
        finally:
            with self._changed:
                self._restoring = False
                self._changed.notify_all()

    def extend(self, size: int, *, final: bool = False) -> int:
        """Declare that a stream now has `size` samples, and if `final`, that it is complete.

        Returns its size.

        Raises:
            AgentError: the data set is not a stream, or it was completed with fewer samples.
        """
        self._check_process()
        answer = self._source.call(
            "extend_dataset", dataset=self._name, size=size, final=final
        ).result()
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        return int(answer["size"])

    def close(self) -> None:
        """Stop leasing, and return the shards that `take` has not returned."""
        self._check_process()
        with self._changed:
            self._closed = True
            self._to_report["returned"] += [shard.id for shard in self._ready]
            self._ready.clear()
            self._changed.notify_all()

    @property
    def _unreported(self) -> bool:
        return self._reporting or any(self._to_report.values())

    def _check_process(self) -> None:
        """Raise in a forked process, which lacks the threads and would wait for ever."""
        if os.getpid() != self._pid:
            raise AgentError(
                f"data set {self._name} was opened by process {self._pid} and is used in process "
                f"{os.getpid()}, forked from it: open it in the process that takes the shards, "
                "or pass shards on from the process that opened it"
            )

    def _finish(self, how: str, finished: Sequence[Shard], why: str = "") -> None:
        self._check_process()
        with self._changed:
            self._to_report[how].extend(shard.id for shard in finished)
            self._failure_message = why[:MAX_SHARD_MESSAGE_CHARACTERS] or self._failure_message
            self._changed.notify_all()

    # --- threads

    def _lease(self) -> None:
        starved_since = None
        first = True
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wants_more)
                if self._closed:
                    return
                wanted = self._prefetch - len(self._ready)
                changes = self._changes
                self._leasing = True
            try:
                answer = self._source.call(
                    "lease_shards", dataset=self._name, count=wanted
                ).result()
            except AgentError as error:
                self._fail(error)
                return
            with self._changed:
                if self._waits and not first and len(answer["shards"]) == wanted:
                    # The training has used up the reserve before more shards came.
                    self._prefetch = min(2 * self._prefetch, MAX_LEASED_SHARDS)
                first = False
                self._leasing = False
                self._accept(
                    [self._make(**shard) for shard in answer["shards"]],
                    finished=bool(answer["finished"]),
                )
                if answer["shards"] or self._finished:
                    starved_since = None
                else:
                    starved_since = self._warn_about_limit(
                        starved_since, int(answer.get("most", 0))
                    )
                    # The remaining shards are leased; they return if a worker is lost.
                    self._changed.wait_for(
                        lambda: self._closed or self._changes != changes,  # noqa: B023
                        _POLL_SECONDS,
                    )

    @property
    def _wants_more(self) -> bool:
        reserve = len(self._ready) <= self._prefetch // 2
        return reserve and not self._finished and not self._restoring

    def _accept(self, leased: Sequence[AnyShard], *, finished: bool) -> None:
        new = [shard for shard in leased if shard.id not in self._leased]
        self._leased.update(shard.id for shard in new)
        if self._closed:
            self._to_report["returned"] += [shard.id for shard in new]
        else:
            self._ready.extend(new)
        self._finished = finished
        self._changed.notify_all()

    def _warn_about_limit(self, starved_since: float | None, most: int) -> float:
        """Log once that no shards come because this process has too many unreported ones.

        Returns the time since when none have come; infinity after the warning.
        """
        now = time.monotonic()
        if starved_since is None:
            return now
        if (
            not self._ready
            and 0 < most <= len(self._leased)
            and now - starved_since > _STARVED_SECONDS
        ):
            log.warning(
                "data set %s: %d shards are leased and not reported; with this number of workers "
                "and data sets a worker may hold %d. Report them done more often, "
                "or make shards larger.",
                self._name,
                len(self._leased),
                most,
            )
            return float("inf")
        return starved_since

    def _report(self) -> None:
        while True:
            with self._changed:
                self._reporting = False
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: any(self._to_report.values()) or (self._closed and not self._leased)
                )
                if not any(self._to_report.values()):
                    return
                report = self._to_report
                message = self._failure_message
                self._to_report = {how: [] for how in report}
                self._failure_message = ""
                self._reporting = True
            try:
                self._source.call(
                    "report_shards", dataset=self._name, message=message, **report
                ).result()
            except AgentError as error:
                self._fail(error)
                return
            with self._changed:
                self._leased.difference_update(*report.values())
                self._changes += 1

    def _fail(self, error: AgentError) -> None:
        with self._changed:
            self._leasing = False
            self._error = error
            self._changed.notify_all()
