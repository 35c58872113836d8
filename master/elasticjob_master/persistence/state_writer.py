"""Writes the state when it has changed.

The first change is written at once, and later ones together. A write that a request waits for
follows soon.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from elasticjob_master.persistence.store import Store, StoreFailed
from elasticjob_master.persistence.stored_state import EncodedState, StateTooLarge

log = logging.getLogger(__name__)

_STORED_TIMEOUT_SECONDS = 8.0
_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 20.0
"""The time between two checks that an unchanged state was not deleted."""


LEAST_SECONDS = 0.02
"""The least time between two writes, so that simultaneous changes are stored together."""
_SHARE_OF_TIME = 0.1
"""The share of the master's CPU time that snapshots may take, however large the state is."""
_SHARE_OF_UNWAITED = 0.02
"""The same for snapshots that no request waits for."""
LONGEST_UNWAITED_SECONDS = 5.0
"""The most time that this share delays a write."""
_URGENT_PAUSES = 5
"""The pauses in which the budget of urgent requests gains one write."""


class NotStored(Exception):
    """The state could not be stored in time. The caller tries again later."""


class StateWriter:
    """Writes the state when it has changed, and lets others wait until it is stored."""

    def __init__(self, store: Store, snapshot: Callable[[], EncodedState]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._write_budget = WriteBudget(pause=store.pause, burst=store.burst)
        self._changes = 0
        self._stored = 0
        self._awaited = 0
        self._awaited_urgently = 0
        self._write_requested = False
        self._checked_at = 0.0
        self._unstored_since: float | None = None
        self._failing_since: float | None = None
        self.stored_bytes = 0
        self.left_out: tuple[str, ...] = ()
        """The parts of the state that are not stored because they do not fit."""
        self.writes = 0
        self._listeners: list[Callable[[EncodedState, float], None]] = []
        self._wake = asyncio.Event()
        self._written = asyncio.Event()

    def subscribe(self, listener: Callable[[EncodedState, float], None]) -> None:
        """Call a listener after each write, with the stored state and the time when it began."""
        self._listeners.append(listener)

    @property
    def changes(self) -> int:
        """The number of changes so far, which is the number of the latest one."""
        return self._changes

    def changed(self) -> None:
        """Count a change, which is written soon."""
        self._changes += 1
        if self._unstored_since is None:
            self._unstored_since = time.monotonic()
            self._wake.set()

    def unstored_seconds(self) -> float:
        """Return the age of the oldest change that is not stored; 0: all are stored."""
        return 0.0 if self._unstored_since is None else time.monotonic() - self._unstored_since

    def failing_seconds(self) -> float:
        """Return the seconds since the first failed attempt; 0: the last attempt has succeeded."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    def write_now(self) -> None:
        """Write the present state after the write that is under way, if any, even if unchanged."""
        if not self._write_requested:
            self._write_requested = True
            self.changed()
            self._wake.set()

    async def wait_until_stored(self, change: int, *, urgent: bool = False) -> None:
        """Return when all changes up to this number are stored. Raises `NotStored` if not soon.

        `urgent`: the processes of a world wait for it, and nobody trains meanwhile.
        """
        if self._awaited < change:
            self._awaited = change
            self._wake.set()
        if urgent and self._awaited_urgently < change:
            self._awaited_urgently = change
            self._wake.set()
        try:
            async with asyncio.timeout(_STORED_TIMEOUT_SECONDS):
                while self._stored < change:
                    await self._written.wait()
        except TimeoutError as error:
            raise NotStored(
                "the master's state cannot be stored at the moment; try again"
            ) from error

    async def run(self) -> None:
        """Write whenever something has changed.

        Raises `TakenOver` or `CredentialsRefused`.
        """
        self._checked_at = self._now()
        while True:
            await self._wait_until_due()
            try:
                if self._changes == self._stored:
                    await self._check()
                else:
                    await self.flush()
            except StoreFailed as error:
                log.warning("the state is not stored, trying again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _wait_until_due(self) -> None:
        """Return when it is time for a write or for a check."""
        while True:
            self._wake.clear()
            wait = max(0.0, self._checked_at + _CHECK_SECONDS - self._now())
            if self._write_requested:
                return
            if self._changes != self._stored:
                wait = self._write_budget.seconds_until_write(
                    self._now(),
                    waited_for=self._awaited > self._stored,
                    urgent=self._awaited_urgently > self._stored,
                )
            if not wait:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def _check(self) -> None:
        """Count a change if the stored state was deleted, so that it is written again."""
        with self._recording_failure():
            kept = await self._store.is_kept()
        self._checked_at = self._now()
        if not kept:
            log.warning("the stored state was deleted; it is written again")
            self.changed()

    async def flush(self) -> None:
        """Write now if something has changed."""
        changes = self._changes
        if changes != self._stored:
            began_at = time.monotonic()
            cpu_before = time.thread_time()
            self._write_requested = False
            with self._recording_failure():
                snapshot = self._take_snapshot()
                snapshot_seconds = time.thread_time() - cpu_before
                await self._store.save(snapshot.data)
            self._checked_at = self._now()
            self._write_budget.record_write(self._now(), snapshot_seconds=snapshot_seconds)
            self._stored = changes
            self._unstored_since = None if changes == self._changes else began_at
            self.stored_bytes = len(snapshot.data)
            self.writes += 1
            written = self._written
            self._written = asyncio.Event()
            written.set()
            for listener in self._listeners:
                listener(snapshot, began_at)

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Record whether the store can be reached."""
        try:
            yield
        except StoreFailed:
            if self._failing_since is None:
                self._failing_since = time.monotonic()
            raise
        self._failing_since = None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _take_snapshot(self) -> EncodedState:
        """Return the present state in its stored form. Raises `StoreFailed` if it does not fit."""
        try:
            snapshot = self._snapshot()
        except StateTooLarge as error:
            raise StoreFailed(str(error)) from error
        if snapshot.left_out != self.left_out:
            self.left_out = snapshot.left_out
            parts = ", ".join(snapshot.left_out) or "nothing, it fits again"
            log.warning("the state is stored without: %s", parts)
        return snapshot


class WriteBudget:
    """Decides when the state may be written: soon if a request waits for it, rarely otherwise.

    `now` is the time of any monotonic clock.

    Each write costs the API server work, so in the long run there is about one every `pause`
    seconds. But a client that waits for several writes one after the other would wait for as many
    pauses. So writes that requests wait for may follow each other quickly until a budget, a token
    bucket, is used up; it fills up again with time.

    The reports of a training use up such a budget all the time. At a change of the world all
    processes wait for a few writes, one after the other, while nobody trains. So urgent requests
    have a second budget, which fills up more slowly: with both there are at most six writes in five
    pauses.
    """

    def __init__(self, *, pause: float, burst: float) -> None:
        """Begin with full budgets.

        `pause`: the seconds between two writes that no request waits for. The usual budget gains
        one write in that time. `burst`: the quick writes in a full budget; `inf`: no limit.
        """
        self._pause = pause
        self._usual = _Bucket(burst=burst, pause=pause)
        self._urgent = _Bucket(burst=burst, pause=_URGENT_PAUSES * pause)
        self._next = 0.0
        """The earliest time of any write."""
        self._next_unwaited = 0.0
        """The earliest time of a write that no request waits for."""

    def record_write(self, now: float, *, snapshot_seconds: float) -> None:
        """Record a write, and the CPU time of taking its snapshot."""
        early = now < min(self._next_unwaited, self._usual.next)
        (self._urgent if early else self._usual).take(now)
        self._next = now + max(LEAST_SECONDS, (1 / _SHARE_OF_TIME - 1) * snapshot_seconds)
        pause = min(snapshot_seconds / _SHARE_OF_UNWAITED, LONGEST_UNWAITED_SECONDS)
        self._next_unwaited = now + max(self._pause, pause)

    def seconds_until_write(self, now: float, *, waited_for: bool, urgent: bool = False) -> float:
        """Return the seconds until the next write may begin, for which requests wait or not."""
        due = self._next_unwaited
        if waited_for or urgent:
            due = min(due, self._usual.next)
        if urgent:
            due = min(due, self._urgent.next)
        return max(0.0, due - now, self._next - now)


class _Bucket:
    """A token bucket.

    Attributes:
        next: the earliest time of the next write.
    """

    def __init__(self, *, burst: float, pause: float) -> None:
        self._burst = burst
        self._pause = pause
        self._full = 0.0
        """When it will be full again."""
        self.next = -math.inf

    def take(self, now: float) -> None:
        """Take a token for a write."""
        self._full = max(self._full, now) + self._pause
        self.next = self._full - (self._burst - 1) * self._pause
