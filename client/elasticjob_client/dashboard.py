"""Serves a job's dashboard at a port of this machine, without a certificate or a token.

The server listens on 127.0.0.1 only and answers four paths: the page, its data, the stream of their
changes, and the last log lines of a member, which it reads with the user's rights. It accepts no
other host name, so that other sites cannot read it by DNS rebinding. The page and all headers are
those of this package. A master gives data only, so that no server can run scripts in the browser.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from elasticjob_api import names
from elasticjob_dashboard.data import Sections, page_data, sections_of
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams
from elasticjob_kube.connection import ClosingConnector

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnavailable, MasterUnreachable
from elasticjob_client.jobs import get_job
from elasticjob_client.master import MasterEndpoint, wait_for_starting_master
from elasticjob_client.master_ways import TokenRefused, reach_master
from elasticjob_client.member_log import LastLines, last_lines
from elasticjob_client.own_account import is_own
from elasticjob_client.report import stored_master

_DATA = "/status"
_SECONDS = 5.0
_MAX_BYTES = 32 * 1024 * 1024
_OTHER_ACCOUNT = "logs are shown to the account only that serves this page"
_MOST_STREAMS = 4
"""A browser opens at most 6 connections to a server. More pages read the data as a whole."""
_STREAM_SECONDS = 2.0
"""Between two requests to the master for open pages."""


@asynccontextmanager
async def serve_dashboard(cluster: Cluster, job: str, *, port: int = 0) -> AsyncIterator[str]:
    """Serve a job's dashboard until the block ends; yields its URL.

    Args:
        cluster: its user may query the job's master, or read the answers that the master stored.
        job: its name.
        port: of 127.0.0.1; 0: a free port.

    Raises:
        MasterUnavailable: the job has no master now, and no answers are stored.
        MasterUnreachable: the master does not answer, and no answers are stored.
        ClientError: the port is in use.
    """
    hosts: set[str] = set()
    page = Page(reads_logs=True)
    headers = {**page.headers, "Cache-Control": "no-store"}
    async with _Source(cluster, job) as source:
        await wait_for_starting_master(cluster, job)
        await source.data()  # raises early if there is nothing to serve

        async def show_page(_: web.Request) -> web.Response:
            return web.Response(text=page.text, content_type="text/html")

        async def show_data(_: web.Request) -> web.Response:
            try:
                return web.Response(body=await source.data(), content_type="application/json")
            except ClientError as error:
                return web.Response(status=503, text=f"{error}\n")

        async def show_log(request: web.Request) -> web.Response:
            if not _is_own(request):
                return web.json_response(LastLines(lines=[], problem=_OTHER_ACCOUNT))
            return web.json_response(await last_lines(cluster, job, request.query.get("pod", "")))

        streams = Streams(source.sections, most=_MOST_STREAMS, seconds=_STREAM_SECONDS)

        async def show_changes(request: web.Request) -> web.StreamResponse:
            return await streams.serve(request, headers)

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.headers.get("Host", "").lower() not in hosts:
                return web.Response(status=403, text="this is served for 127.0.0.1 only\n")
            answer = await handler(request)
            answer.headers.update(headers)
            return answer

        app = web.Application(middlewares=[guard])
        app.add_routes(
            [
                web.get("/", show_page),
                web.get(_DATA, show_data),
                web.get("/stream", show_changes),
                web.get("/log", show_log),
            ]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        try:
            port = await _listen(runner, port)
            hosts.update((f"127.0.0.1:{port}", f"localhost:{port}"))
            yield f"http://127.0.0.1:{port}/"
        finally:
            streams.end()
            await runner.cleanup()


def _is_own(request: web.Request) -> bool:
    """Return whether a request comes from a program of the user whose rights are used."""
    if request.transport is None:
        return False
    client, server = map(request.transport.get_extra_info, ("peername", "sockname"))
    return is_own(client, server)


async def _listen(runner: web.AppRunner, port: int) -> int:
    """Listen on a port of 127.0.0.1 and return it. Raises `ClientError`."""
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClientError(f"port {port} of this machine cannot be used: {why}") from error
    listening: int = runner.addresses[0][1]
    return listening


class _Source:
    """Gets the page's data from the job's master, or from the answers that it stored.

    If the present master no longer answers, the next one is looked up.
    """

    def __init__(self, cluster: Cluster, job: str) -> None:
        self._cluster = cluster
        self._job = job
        self._endpoint: MasterEndpoint | None = None
        self._way = AsyncExitStack()
        self._connecting = asyncio.Lock()
        self._http = aiohttp.ClientSession(
            connector=ClosingConnector(), timeout=aiohttp.ClientTimeout(total=_SECONDS)
        )

    async def __aenter__(self) -> _Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._way.aclose()
        await self._http.close()

    async def data(self) -> bytes:
        """Return the page's data as JSON. Raises `ClientError` if there is none."""
        try:
            return await self._from_master()
        except (MasterUnavailable, MasterUnreachable) as problem:
            stored = await stored_master(self._cluster, self._job, problem)
        return page_data(stored.answers, ended=True)

    async def sections(self) -> Sections:
        """Return the page's data in sections; `problem` says why there is none now."""
        try:
            return {**sections_of(await self.data()), "problem": b"null"}
        except (ClientError, msgspec.DecodeError) as error:
            return {"problem": json.dumps(str(error)).encode()}

    async def _from_master(self) -> bytes:
        async with self._connecting:
            if self._endpoint is not None:
                try:
                    return await self._request(self._endpoint)
                except (MasterUnreachable, TokenRefused):
                    self._endpoint = None
                    await self._way.aclose()

            async def connect(endpoint: MasterEndpoint, _: AsyncExitStack) -> bytes:
                answer = await self._request(endpoint)
                self._endpoint = endpoint
                return answer

            return await reach_master(
                self._cluster,
                await get_job(self._cluster, self._job),
                connect,
                self._way,
                port=names.HTTP_PORT,
            )

    async def _request(self, endpoint: MasterEndpoint) -> bytes:
        where = f"the master of {self._cluster.namespace}/{self._job}"
        try:
            async with self._http.get(
                f"https://{endpoint.address}{_DATA}",
                headers={"Authorization": f"Bearer {endpoint.token}"},
                ssl=ssl.create_default_context(cadata=endpoint.authority.decode()),
                server_hostname=names.TLS_SERVER_NAME,
                allow_redirects=False,
            ) as answer:
                if answer.status == 401:
                    raise TokenRefused(f"{where} does not accept this job's token")
                if answer.status != 200:
                    raise ClientError(f"{where} answered {answer.status} to GET {_DATA}")
                return await _bounded(answer, where)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise MasterUnreachable(
                f"{where} can't be reached at {endpoint.address}: {reason}"
            ) from error


async def _bounded(answer: aiohttp.ClientResponse, where: str) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _MAX_BYTES:
            raise ClientError(f"{where} answered more than {_MAX_BYTES} bytes")
    return bytes(body)
