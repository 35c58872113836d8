"""Runs coroutines for programs without `await`, by an event loop in another thread.

The thread also works in programs that already run a loop, such as notebooks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError
from typing import Any, Never, TypeVar

from elasticjob_client.errors import ClientError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._iterated: set[AsyncGenerator[Any, None]] = set()
        self._thread = threading.Thread(target=self._run, name="elasticjob-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, or raise its error; Ctrl-C cancels it.

        Raises `ClientError` once the loop is stopped.
        """
        if self._loop.is_closed():
            work.close()
            raise ClientError("the client is closed; create another one")
        future = asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise ClientError("the client was closed meanwhile, in another thread") from error
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the items of an asynchronous generator, and close it when the caller stops."""
        self._iterated.add(items)
        try:
            while True:
                try:
                    item = self.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._iterated.discard(items)
            if not self._loop.is_closed():
                self.run(items.aclose())

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Cancel the work of other threads, run `last`, and end the thread.

        Does nothing if the thread has ended.
        """
        if self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:  # called by the garbage collector
            self._loop.create_task(self._end(last)).add_done_callback(lambda _: self._loop.stop())
            return
        try:
            self.run(self._end(last))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __reduce__(self) -> Never:
        raise TypeError(
            "a client and its jobs can be neither copied nor pickled; get the job by its name"
        )

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def _end(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Cancel all work, so that no thread waits forever, and run `last`."""
        try:
            rest = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            for items in tuple(self._iterated):
                await items.aclose()
        finally:
            await last()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
