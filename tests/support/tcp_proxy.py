"""A TCP proxy whose connections can be cut: nothing gets through any more, and neither end gets an error.

Either all are cut until they are restored, or those that are open now for ever, while new ones are forwarded.
"""

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

    def freeze(self) -> None:
        """Let nothing through on the connections that are open now, for ever; new ones are forwarded."""
        self._connected.clear()
        self._connected = asyncio.Event()
        self._connected.set()

    def restore(self) -> None:
        """Let everything through again, also what was sent meanwhile."""
        self._connected.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a new connection, both ways."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connected = self._connected
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await connected.wait()
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            await asyncio.gather(
                self._forward(reader, there_writer, connected), self._forward(there_reader, writer, connected)
            )
        self._tasks.discard(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connected: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(65536):
                await connected.wait()
                writer.write(data)
                await writer.drain()
            await connected.wait()  # the end of a connection does not get through either
        except OSError:
            await connected.wait()
        finally:
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
