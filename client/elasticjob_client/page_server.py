"""Serves pages at a port of this machine: to no other host, and under no other host's name.

Other sites can neither read them by DNS rebinding, nor let the browser send a change: every request
must name this server as its host, and as its origin if it has one. A port of 127.0.0.1 is open to
all accounts of the machine: what only its owner may read, such as logs, is refused to the others.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from elasticjob_kube.guarded_server import GuardedServer

from elasticjob_client.errors import ClientError

CONNECTIONS = Path("/proc/net/tcp")
_UID = 7
"""The column of the account that owns a socket."""


@asynccontextmanager
async def serve_locally(
    routes: Iterable[web.RouteDef], headers: Mapping[str, str], *, port: int
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL.

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
    server = GuardedServer(app)
    try:
        port = await server.start(["127.0.0.1"], port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClientError(f"port {port} of this machine cannot be used: {why}") from error
    hosts.update((f"127.0.0.1:{port}", f"localhost:{port}"))
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        await server.stop()


def is_own(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Return whether the client's end of a connection over IPv4 belongs to this account.

    On a system that does not tell, which has no /proc, every client is taken as this account's.
    """
    try:
        lines = CONNECTIONS.read_text().splitlines()[1:]
    except OSError:
        return True
    ends = [_written(*client), _written(*server)]
    owners = [columns[_UID] for columns in map(str.split, lines) if columns[1:3] == ends]
    return owners == [str(os.getuid())]


def _written(host: str, port: int) -> str:
    """Return an address as the kernel writes it: the bytes of the host in the machine's order."""
    [number] = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
