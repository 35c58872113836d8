"""A TCP proxy whose connections can be cut: nothing gets through any more, and neither end gets an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class CuttableProxy:
    """Forwards all connections of one port, unless it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._connected = asyncio.Event()
        self._connected.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Let nothing through."""
        self._connected.clear()

    def restore(self) -> None:
        """Let everything through again, also what was sent meanwhile."""
        self._connected.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a new connection, both ways."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._connected.wait()
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._forward(reader, there_writer), self._forward(there_reader, writer))
        self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._connected.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self._connected.wait()  # the end of a connection does not get through either
            writer.close()

    async def end(self) -> None:
        """Forward nothing any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def cuttable_proxy(host: str, port: int, *, to: tuple[str, int]) -> AsyncIterator[CuttableProxy]:
    """Run a proxy that forwards a port while in the block."""
    made = CuttableProxy(*to)
    server = await asyncio.start_server(made.serve, host, port)
    try:
        yield made
    finally:
        server.close()
        await made.end()
