"""A work queue of keys, such as those of jobs.

The work on a key starts as soon as the key is added, but never twice at the same time: additions
during the work cause one more run. If the work fails, it is repeated after a growing pause, which
delays no other key. A key that has used much may have to rest before its next run, whatever adds
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Generic, TypeVar

from elasticjob_kube.errors import KubeError, TryLater

log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_WHEN_CHANGED_SECONDS = 5.0
LONGEST_PAUSE_IN_OUTAGE_SECONDS = 10.0
"""While the API server gives no useful answer: it does not announce when it recovers."""


class Retry(Exception):
    """The work on a key failed; repeat it after a growing pause.

    Attributes:
        after: the shortest pause, in seconds.
        longest: the longest pause, in seconds.
        due: seconds until the next deadline of the key, which the pause must not delay, or None.
        is_known: whether the reason has been logged already.
    """

    def __init__(
        self,
        message: str,
        *,
        after: float = 0.0,
        longest: float = LONGEST_PAUSE_SECONDS,
        due: float | None = None,
        is_known: bool = False,
    ) -> None:
        super().__init__(message)
        self.after = after
        self.longest = longest
        self.due = due
        self.is_known = is_known


def retry_after(error: KubeError, *, due: float | None = None) -> Retry:
    """Return the `Retry` for an error of the API server; an outage does not cause long pauses."""
    if isinstance(error, TryLater):
        return Retry(
            error.message,
            after=error.retry_after or 0.0,
            longest=LONGEST_PAUSE_IN_OUTAGE_SECONDS,
            due=due,
        )
    return Retry(error.message, due=due)


class WorkQueue(Generic[K]):
    """Runs `work(key)` for every key that is added.

    `work` returns the seconds after which to run again, or None. After each run, `on_end` is called
    with the error, or None. `rest` returns the seconds for which the key must not run again, and
    `log_fields` the fields of the records about a key.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        on_end: Callable[[K, BaseException | None], None] = lambda _, __: None,
        rest: Callable[[K], float] = lambda _: 0.0,
        log_fields: Callable[[K], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._work = work
        self._on_end = on_end
        self._rest = rest
        self._log_fields = log_fields
        self._tasks: dict[K, asyncio.Future[float | None]] = {}
        self._dirty: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._rests: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._closed = False
        self.results: Counter[str] = Counter(done=0, failed=0)
        """The numbers of successful (`done`) and failed (`failed`) runs."""

    @property
    def busy(self) -> int:
        """The number of keys whose work is running."""
        return len(self._tasks)

    def add(self, key: K) -> None:
        """Run the work on the key now, or once more after the running one and its rest."""
        if self._closed:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._tasks or key in self._rests:
            self._dirty.add(key)
        else:
            task = self._tasks[key] = asyncio.ensure_future(self._work(key))
            task.add_done_callback(partial(self._done, key))

    def add_after(self, key: K, seconds: float) -> None:
        """Run the work on the key after this time, or earlier if the key is added again."""
        if self._closed or key in self._dirty:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def close(self) -> None:
        """Accept no more keys, and wait until running work has ended."""
        self._closed = True
        for timer in (*self._timers.values(), *self._rests.values()):
            timer.cancel()
        self._timers.clear()
        self._rests.clear()
        self._dirty.clear()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def abort(self) -> None:
        """Accept no more keys, and cancel running work."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await self.close()

    def _done(self, key: K, task: asyncio.Future[float | None]) -> None:
        del self._tasks[key]
        if task.cancelled():
            self._dirty.discard(key)
            return
        error = task.exception()
        was_changed = key in self._dirty
        self._dirty.discard(key)
        if error is None:
            self.results["done"] += 1
            self._failures.pop(key, None)
            again = 0.0 if was_changed else task.result()
        else:
            self.results["failed"] += 1
            again = self._pause(key, error)
            if was_changed:
                # The change may be the operator's own write, which the watch has reported before
                # its answer. So the failure still has a pause.
                again = min(again, LONGEST_PAUSE_WHEN_CHANGED_SECONDS)
        if not self._closed and (rest := self._rest(key)) > 0:
            self._rests[key] = asyncio.get_running_loop().call_later(rest, self._end_rest, key)
        if again is not None:
            self.add_after(key, again)
        self._on_end(key, error)

    def _end_rest(self, key: K) -> None:
        del self._rests[key]
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def _pause(self, key: K, error: BaseException) -> float:
        """Log a failure, and return the pause after it in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 20))
        extra = self._log_fields(key)
        if not isinstance(error, Retry):
            log.error("%s: unexpected error", key, exc_info=error, extra=extra)
            return pause
        if not error.is_known:
            log.warning("%s: %s", key, error, extra=extra)
        pause = min(pause, error.longest)
        if error.due is not None:
            pause = min(pause, max(error.due, FIRST_PAUSE_SECONDS))
        return max(pause, error.after)
