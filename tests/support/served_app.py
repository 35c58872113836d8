"""Serves an aiohttp application of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext

from aiohttp import web


@asynccontextmanager
async def served_app(
    app: web.Application,
    ssl_context: SSLContext | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[int]:
    """Serve while in the block, with TLS if a context is given; yields the port.

    It is a free one unless it is given.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=ssl_context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
