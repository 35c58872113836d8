"""A TCP proxy whose connections can be cut: nothing gets through any more, and neither end gets an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Wire:
    """Forwards all connections of one port, while it is whole."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Let nothing through."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through again, also what was sent meanwhile."""
        self._whole.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a new connection, both ways."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._whole.wait()
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._forward(reader, there_writer), self._forward(there_reader, writer))
        self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self._whole.wait()  # the end of a connection does not get through either
            writer.close()

    async def end(self) -> None:
        """Forward nothing any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def wire(host: str, port: int, *, to: tuple[str, int]) -> AsyncIterator[Wire]:
    """Forward a port."""
    made = Wire(*to)
    server = await asyncio.start_server(made.carry, host, port)
    try:
        yield made
    finally:
        server.close()
        await made.end()
