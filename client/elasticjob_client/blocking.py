"""An event loop in a thread of its own, which drives what is asynchronous for programs that are not.

So it also works where a loop runs already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="elasticjob-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work, or raise its error; Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield what an asynchronous generator does; it is closed when the caller stops before its end."""
        try:
            while True:
                try:
                    item = self.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.run(items.aclose())

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do a last work, and end the thread. Does nothing where it has ended."""
        if self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:  # garbage is collected in whatever thread
            self._loop.create_task(last()).add_done_callback(lambda _: self._loop.stop())
            return
        try:
            self.run(last())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
