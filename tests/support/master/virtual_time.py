"""An event loop in virtual time, which advances only when no task can run.

Hours take milliseconds, reproducibly.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

START = 1_800_000_000.0


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks and timers in a fixed order. It supports neither network nor threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now = START
        self._clock_resolution = 1e-6  # the resolution of a float at such times
        self._selector = self
        self._failure: BaseException | None = None
        self.set_exception_handler(
            lambda _, context: self.fail(context.get("exception") or RuntimeError(context))
        )

    def time(self) -> float:
        return self._now

    def fail(self, error: BaseException) -> None:
        """End the run with this error, from anywhere in the loop."""
        if self._failure is None:
            self._failure = error
            self.stop()

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run to the end, or to the first failure, and cancel all other tasks then."""
        with _patched_clock(self):
            task = self.create_task(main)
            try:
                self.run_until_complete(task)
            except RuntimeError:
                if self._failure is None:
                    raise
                raise self._failure from None
            finally:
                self._cancel_rest()

    def _cancel_rest(self) -> None:
        self.set_exception_handler(lambda *_: None)
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.call_later(10, self.stop)
        self.run_forever()
        self.close()

    # --- methods that BaseEventLoop calls: it waits by calling a selector, which is this loop
    # ------------------------

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("no task will ever run again")
        self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        return None

    def _write_to_self(self) -> None:
        return None


@contextlib.contextmanager
def _patched_clock(loop: VirtualLoop) -> Iterator[None]:
    with mock.patch("time.time", loop.time):
        yield


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Let a test run in virtual time."""

    @functools.wraps(test)
    def run() -> None:
        loop = VirtualLoop()
        with mock.patch("time.monotonic", loop.time):
            loop.run(test())

    return run
