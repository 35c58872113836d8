"""Serves an aiohttp application of a test at a free port of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext

from aiohttp import web


@asynccontextmanager
async def served_app(
    app: web.Application, ssl_context: SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while in the block, with TLS if a context is given; yields the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
