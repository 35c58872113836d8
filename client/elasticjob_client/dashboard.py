"""Serves a job's dashboard at a port of this machine: no certificate to accept, no token to type.

The proxy listens on 127.0.0.1 only and answers two paths: the page, and its data. It answers to
that name only, so that no other site's page reads it under a name of its own (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import aiohttp
from aiohttp import web
from elasticjob_api import names

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnreachable
from elasticjob_client.master import MasterEndpoint, find_master
from elasticjob_client.master_queries import TokenRefused
from elasticjob_client.master_ways import Way, ways_to

PATHS = ("/", "/status")
_SECONDS = 5.0
_MAX_BYTES = 32 * 1024 * 1024
_HEADERS = ("Content-Type", "Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy")


@dataclass(frozen=True)
class Page:
    """An answer: its body, and the headers that matter to a browser."""

    body: bytes
    headers: Mapping[str, str]


class Source(Protocol):
    """Where the dashboard's answers come from."""

    async def get(self, path: str) -> Page:
        """Return the answer to one of `PATHS`. Raises `ClientError` where there is none now."""


@asynccontextmanager
async def serve_dashboard(source: Source, *, port: int = 0) -> AsyncIterator[str]:
    """Serve a dashboard until the block ends; yields its URL.

    `port`: of 127.0.0.1; 0: one that is free. Raises `ClientError` if it is taken.
    """
    hosts: set[str] = set()

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Host", "").lower() not in hosts:
            return web.Response(status=403, text="this is served for 127.0.0.1 only\n")
        try:
            page = await source.get(request.path)
        except ClientError as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(body=page.body, headers={**page.headers, "Cache-Control": "no-store"})

    app = web.Application()
    app.add_routes([web.get(path, answer) for path in PATHS])
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ClientError(f"port {port} of this machine cannot be used: {why}") from error
        port = runner.addresses[0][1]
        hosts.update((f"127.0.0.1:{port}", f"localhost:{port}"))
        yield f"http://127.0.0.1:{port}/"
    finally:
        await runner.cleanup()


class MasterSource:
    """The job's master, and the next one when it is gone; an async context manager."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        self._cluster = cluster
        self._job = job
        self._open = AsyncExitStack()
        self._endpoint: MasterEndpoint | None = None
        self._connecting = asyncio.Lock()
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS))

    async def __aenter__(self) -> MasterSource:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()
        await self._http.close()

    async def get(self, path: str) -> Page:
        """Return the master's answer.

        Of the next master, if the present one does not answer any more.
        """
        async with self._connecting:
            if self._endpoint is not None:
                try:
                    return await self._ask(self._endpoint, path)
                except (MasterUnreachable, TokenRefused):
                    await self._disconnect()
            try:
                return await self._connect(path, own_token=False)
            except TokenRefused:
                return await self._connect(path, own_token=True)

    async def _connect(self, path: str, *, own_token: bool) -> Page:
        """Return the answer by the first way on which there is one, which is kept."""
        found = await find_master(self._cluster, self._job, own_token=own_token)
        endpoint = replace(found, address=f"{found.address.rpartition(':')[0]}:{names.HTTP_PORT}")
        problems = []
        for way in ways_to(endpoint, given=False):
            try:
                return await self._try(way, endpoint, path)
            except MasterUnreachable as error:
                problems.append(str(error))
        raise MasterUnreachable("; ".join(problems))

    async def _try(self, way: Way, endpoint: MasterEndpoint, path: str) -> Page:
        async with AsyncExitStack() as attempt:
            reached = await attempt.enter_async_context(way(self._cluster, self._job, endpoint))
            page = await self._ask(reached, path)
            self._open = attempt.pop_all()
            self._endpoint = reached
        return page

    async def _disconnect(self) -> None:
        self._endpoint = None
        await self._open.aclose()

    async def _ask(self, endpoint: MasterEndpoint, path: str) -> Page:
        where = f"the master of {self._cluster.namespace}/{self._job}"
        context = ssl.create_default_context(cadata=endpoint.authority.decode())
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        try:
            async with self._http.get(
                f"https://{endpoint.address}{path}",
                headers=headers,
                ssl=context,
                server_hostname=names.TLS_SERVER_NAME,
            ) as answer:
                if answer.status == 401:
                    raise TokenRefused(f"{where} does not accept this job's token")
                if answer.status != 200:
                    raise ClientError(
                        f"{where} answered {answer.status}: {(await answer.text())[:500].strip()}"
                    )
                body = await _bounded(answer, where)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise MasterUnreachable(
                f"{where} can't be reached at {endpoint.address}: {reason}"
            ) from error
        return Page(
            body, {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
        )


async def _bounded(answer: aiohttp.ClientResponse, where: str) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _MAX_BYTES:
            raise ClientError(f"{where} answered more than {_MAX_BYTES} bytes")
    return bytes(body)
