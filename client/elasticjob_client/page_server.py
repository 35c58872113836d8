"""Serves pages at a port of this machine: to no other host, and under no other host's name.

Other sites can neither read them by DNS rebinding, nor let the browser send a change: every request
must name this server as its host, and as its origin if it has one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from elasticjob_client.errors import ClientError


@asynccontextmanager
async def serve_locally(
    routes: Iterable[web.RouteDef], headers: Mapping[str, str], *, port: int
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL.

    Args:
        routes: methods, paths and handlers.
        headers: of every answer that has no others.
        port: of 127.0.0.1; 0: a free port.

    Raises:
        ClientError: the port is in use.
    """
    hosts: set[str] = set()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "").lower()
        if host not in hosts:
            return web.Response(status=403, text="this is served for 127.0.0.1 only\n")
        if request.headers.get("Origin", f"http://{host}").lower() != f"http://{host}":
            return web.Response(status=403, text="pages of other sites get no answer\n")
        answer = await handler(request)
        for name, value in headers.items():
            answer.headers.setdefault(name, value)
        return answer

    app = web.Application(middlewares=[guard])
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        port = await _listen(runner, port)
        hosts.update((f"127.0.0.1:{port}", f"localhost:{port}"))
        yield f"http://127.0.0.1:{port}/"
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int) -> int:
    """Listen on a port of 127.0.0.1 and return it. Raises `ClientError`."""
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClientError(f"port {port} of this machine cannot be used: {why}") from error
    listening: int = runner.addresses[0][1]
    return listening
