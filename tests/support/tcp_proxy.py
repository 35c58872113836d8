"""Runs a TCP proxy whose connections can be cut.

A cut connection forwards nothing, and neither end gets an error. Either all connections are cut
until they are restored, or the present ones are frozen for ever, while new ones are forwarded.
Connections can also be reset: then both ends get an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class _Connection:
    """One connection, both ways."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.passes = asyncio.Event()
        """While unset nothing is forwarded, not even the end of the connection."""
        self.frozen = False
        """Permanently cut: `restore` does not apply."""


class CuttableProxy:
    """Forwards all connections of one port, unless it is cut."""

    def __init__(self, target: tuple[str, int] | None) -> None:
        self.target = target
        self._cut = False
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    def cut(self) -> None:
        """Forward nothing; neither end gets an error."""
        self._cut = True
        for connection in self._connections.values():
            connection.passes.clear()

    def restore(self) -> None:
        """Forward everything again, also the data sent meanwhile.

        Frozen connections stay frozen.
        """
        self._cut = False
        for connection in self._connections.values():
            if not connection.frozen:
                connection.passes.set()

    def freeze(self) -> int:
        """Permanently stop forwarding on the present connections, and return their number.

        New connections are forwarded, also after a cut.
        """
        self._cut = False
        for connection in self._connections.values():
            connection.frozen = True
            connection.passes.clear()
        return len(self._connections)

    def reset(self) -> int:
        """Break the present connections, and return their number. Both ends get an error."""
        for connection in self._connections.values():
            for writer in connection.writers:
                writer.transport.abort()
        return len(self._connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a new connection, both ways."""
        task = asyncio.current_task()
        connection = _Connection(writer)
        assert task is not None
        self._connections[task] = connection
        if not self._cut:
            connection.passes.set()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await connection.passes.wait()
            assert self.target is not None
            there_reader, there_writer = await asyncio.open_connection(*self.target)
            connection.writers.append(there_writer)
            await asyncio.gather(
                self._forward(connection, reader, there_writer),
                self._forward(connection, there_reader, writer),
            )
        for end in connection.writers:
            end.close()
        del self._connections[task]

    async def _forward(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(65536):
                await connection.passes.wait()
                writer.write(data)
                await writer.drain()
            await connection.passes.wait()  # the end of a connection is not forwarded either
        except OSError:
            await connection.passes.wait()
        finally:
            writer.close()

    async def end(self) -> None:
        """Close all connections."""
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def cuttable_proxy(
    host: str, port: int, *, to: tuple[str, int] | None
) -> AsyncIterator[CuttableProxy]:
    """Run a proxy that forwards a port while in the block.

    If it has no target, it must be cut until the test has set one.
    """
    made = CuttableProxy(to)
    server = await asyncio.start_server(made.serve, host, port)
    try:
        yield made
    finally:
        server.close()
        await made.end()
