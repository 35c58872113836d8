"""When the state is stored.

The first change at once, later ones together, soon when somebody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from elasticjob_master.persistence.store import Store, StoreFailed
from elasticjob_master.persistence.stored_state import EncodedState, StateTooLarge
from elasticjob_master.persistence.write_budget import WriteBudget

log = logging.getLogger(__name__)

_STORED_TIMEOUT_SECONDS = 8.0
_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 20.0
"""How often a state that does not change is looked for: somebody may have deleted it."""


class NotStored(Exception):
    """The state could not be stored in time; the caller tries again later."""


class StateWriter:
    """Writes the state when it has changed, and lets others wait until it is stored."""

    def __init__(self, store: Store, snapshot: Callable[[], EncodedState]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._write_budget = WriteBudget(pause=store.pause, burst=store.burst)
        self._changes = 0
        self._stored = 0
        self._awaited = 0
        self._hurried = False
        self._checked_at = 0.0
        self._unstored_since: float | None = None
        self._failing_since: float | None = None
        self.stored_bytes = 0
        self.left_out: tuple[str, ...] = ()
        """Parts of the state that are not stored because there is no room for them."""
        self.writes = 0
        self._listeners: list[Callable[[EncodedState, float], None]] = []
        self._wake = asyncio.Event()
        self._written = asyncio.Event()

    def subscribe(self, listener: Callable[[EncodedState, float], None]) -> None:
        """Call a listener after each write, with the stored state and the time at which the write began."""
        self._listeners.append(listener)

    @property
    def changes(self) -> int:
        """How many changes there have been; the number of the latest one."""
        return self._changes

    def changed(self) -> None:
        """Count a change; it is written soon."""
        self._changes += 1
        if self._unstored_since is None:
            self._unstored_since = time.monotonic()
            self._wake.set()

    def unstored_seconds(self) -> float:
        """Return the age of the oldest change that is not stored; 0 when all are."""
        return 0.0 if self._unstored_since is None else time.monotonic() - self._unstored_since

    def failing_seconds(self) -> float:
        """Return since when nothing can be stored; 0: the last attempt has succeeded."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    def write_now(self) -> None:
        """Write the present state as soon as no other write is under way, whether it has changed or not."""
        if not self._hurried:
            self._hurried = True
            self.changed()
            self._wake.set()

    async def wait_until_stored(self, change: int) -> None:
        """Return when all changes up to a number are stored.

        Raises `NotStored` when that takes too long.
        """
        if self._awaited < change:
            self._awaited = change
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
        """Write whenever something has changed, for ever.

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
        """Return when something is to be written and it is time to do so, or when it is time for a check."""
        while True:
            self._wake.clear()
            wait = max(0.0, self._checked_at + _CHECK_SECONDS - self._now())
            if self._hurried:
                return
            if self._changes != self._stored:
                wait = self._write_budget.seconds_until_write(
                    self._now(), waited_for=self._awaited > self._stored
                )
            if not wait:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def _check(self) -> None:
        """Count a change if the state is not there any more, so that it is written again."""
        with self._noting_failure():
            kept = await self._store.is_kept()
        self._checked_at = self._now()
        if not kept:
            log.warning("the stored state is gone; it is written again")
            self.changed()

    async def flush(self) -> None:
        """Write now if something has changed."""
        changes = self._changes
        if changes != self._stored:
            taken_at = time.monotonic()
            busy = time.thread_time()
            self._hurried = False
            with self._noting_failure():
                taken = self._take_snapshot()
                snapshot_seconds = time.thread_time() - busy
                await self._store.save(taken.data)
            self._checked_at = self._now()
            self._write_budget.record_write(self._now(), snapshot_seconds=snapshot_seconds)
            self._stored = changes
            self._unstored_since = None if changes == self._changes else taken_at
            self.stored_bytes = len(taken.data)
            self.writes = self.writes + 1
            written = self._written
            self._written = asyncio.Event()
            written.set()
            for listener in self._listeners:
                listener(taken, taken_at)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Note whether the store can be reached."""
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
        """Return the present state as it is to be stored.

        Raises `StoreFailed` when it does not fit.
        """
        try:
            taken = self._snapshot()
        except StateTooLarge as error:
            raise StoreFailed(str(error)) from error
        if taken.left_out != self.left_out:
            self.left_out = taken.left_out
            log.warning(
                "the state is stored without: %s",
                ", ".join(taken.left_out) or "nothing, it fits again",
            )
        return taken
