"""Serves a job's dashboard at a port of this machine, without a certificate or a token.

It answers six paths: the page, its data, the stream of their changes, the history of another job,
the last log lines of a member, and the logs of all, which it reads with the user's rights. The page
and all headers are those of this package. A master gives data only, so that no server can run
scripts in the browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from aiohttp import web
from elasticjob_api.transports import abort
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams, changes

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NotAllowed
from elasticjob_client.jobs import list_jobs
from elasticjob_client.master import MasterEndpoint, wait_for_starting_master
from elasticjob_client.page_logs import LastLines, last_lines, send_logs
from elasticjob_client.page_server import is_own, serve_locally
from elasticjob_client.page_source import EndpointSource, JobSource, LargeAnswers, Source, Turns

_SEND_SECONDS = 10.0
_OTHER_ACCOUNT = "logs are shown to the account only that serves this page"
MOST_STREAMS = 4
"""A browser opens at most 6 connections to a server. More pages read the data as a whole."""
STREAM_SECONDS = 2.0
"""Between two requests to the master for open pages."""


@asynccontextmanager
async def serve_dashboard(cluster: Cluster, job: str, *, port: int = 0) -> AsyncIterator[str]:
    """Serve a job's dashboard until the block ends; yields its URL.

    Args:
        cluster: its user may query the job's master, or read the answers that the master stored.
        job: its name.
        port: a port of 127.0.0.1; 0 for a free one.

    Raises:
        MasterUnavailable: the job has no master now, and no answers are stored.
        MasterUnreachable: the master does not answer, and no answers are stored.
        ClientError: the port is in use.
    """
    async with aclosing(JobPage(cluster, job, Page(reads_logs=True))) as shown:
        await wait_for_starting_master(cluster, job)
        async with _served(shown, port=port) as url:
            yield url


@asynccontextmanager
async def serve_run(endpoint: MasterEndpoint, name: str, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the dashboard of a run on this machine until the block ends; yields its URL.

    Raises `ClientError` if its master does not answer, or the port is in use.
    """
    source = EndpointSource(endpoint, f"the master of run {name}")
    page = Page(reads_logs=False)
    async with (
        aclosing(JobPage(None, name, page, source=source)) as shown,
        _served(shown, port=port) as url,
    ):
        yield url


@asynccontextmanager
async def _served(shown: JobPage, *, port: int) -> AsyncIterator[str]:
    """Serve a page that has data until the block ends; yields its URL."""
    await shown.source.read()  # raises early if there is nothing to serve

    async def answer(request: web.Request) -> web.StreamResponse:
        return await shown.answer(request, request.match_info["what"])

    routes = [web.get("/{what:[a-z]*}", answer)]
    async with serve_locally(routes, shown.headers, port=port) as url:
        try:
            yield url
        finally:
            shown.streams.end()


class JobPage:
    """Answers the requests of a job's page.

    Args:
        cluster: its user may query the job's master, or read the answers that the master stored;
            None for a page whose data is from `source`, and that reads no logs.
        job: its name.
        page: the page to show.
        source: gets the data; None for the job's master in the cluster.
        open_streams: those that count against the most, if several pages share a server.
        turns: those of the user, whose pages share them.
        large: the pages of a server with much data.
        local: who reads logs must be a program of this process' account.

    Attributes:
        headers: the headers of every answer.
        source: gets the data.
        streams: the open streams.
    """

    def __init__(
        self,
        cluster: Cluster | None,
        job: str,
        page: Page,
        *,
        source: Source | None = None,
        open_streams: set[asyncio.Transport] | None = None,
        turns: Turns | None = None,
        large: LargeAnswers | None = None,
        local: bool = True,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._page = page
        self._local = local
        self.headers = {**page.headers, "Cache-Control": "no-store"}
        self._turns = turns or Turns()
        self._large = large or LargeAnswers()
        if source is None:
            assert cluster is not None
            source = JobSource(cluster, job, self._turns, self._large)
        self.source = source
        self.streams = Streams(
            self.source.sections, most=MOST_STREAMS, seconds=STREAM_SECONDS, among=open_streams
        )

    async def aclose(self) -> None:
        """End the streams and the connections."""
        self.streams.end()
        await self.source.close()

    async def answer(self, request: web.Request, what: str) -> web.StreamResponse:
        """Answer the request of a part of the page; the empty one is the page itself."""
        match what:
            case "":
                return web.Response(text=self._page.text, content_type="text/html")
            case "status":
                return await self._status(request)
            case "stream":
                return await self.streams.serve(request, self.headers)
            case "log":
                return web.json_response(await self._log(request))
            case "logs":
                return await self._logs(request)
            case "other":
                return await self._other(request.query.get("job", ""))
            case _:
                return web.Response(status=404, text="there is no such page\n")

    async def _status(self, request: web.Request) -> web.StreamResponse:
        """Answer with all data; a reader that does not read it is disconnected."""
        async with self._turns.sending:
            try:
                data = changes({}, await self.source.read()) or b"{}"
            except ClientError as error:
                return refusal(error)
            response = web.StreamResponse(headers=self.headers)
            response.content_type = "application/json"
            response.content_length = len(data)
            try:
                async with asyncio.timeout(_SEND_SECONDS):
                    await response.prepare(request)
                    await response.write(data)
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    abort(request.transport)
            return response

    async def _log(self, request: web.Request) -> LastLines:
        cluster = self._readable(request)
        if isinstance(cluster, str):
            return LastLines(lines=[], problem=cluster)
        return await last_lines(cluster, self._job, request.query.get("pod", ""))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        cluster = self._readable(request)
        if isinstance(cluster, str):
            return web.Response(status=403, text=f"{cluster}\n")
        async with self._turns.logs:
            return await send_logs(cluster, self._job, request, self.headers)

    async def _other(self, job: str) -> web.Response:
        """Answer with another job's history for a comparison; without a name, with all names."""
        if self._cluster is None:
            return web.Response(status=404, text="a run on this machine has no other jobs\n")
        try:
            if not job:
                names = [each["metadata"]["name"] for each in await list_jobs(self._cluster)]
                return web.json_response({"names": names})
            source = JobSource(self._cluster, job, self._turns, self._large)
            try:
                found = await source.read()
            finally:
                await source.close()
        except ClientError as error:
            return refusal(error)
        history = {name: found[name] for name in ("samples", "report") if name in found}
        body = changes({}, history) or b"{}"
        return web.Response(body=body, content_type="application/json")

    def _readable(self, request: web.Request) -> Cluster | str:
        """Return the cluster whose logs may be shown to the request; a text says why none may."""
        if self._cluster is None:
            return "a run on this machine has no logs of pods"
        return _OTHER_ACCOUNT if self._local and not _is_own(request) else self._cluster


def refusal(error: ClientError) -> web.Response:
    """Return the answer to a request for data that cannot be read: 403 if the user may not."""
    return web.Response(status=403 if isinstance(error, NotAllowed) else 503, text=f"{error}\n")


def _is_own(request: web.Request) -> bool:
    """Return whether a request comes from a program of the user whose rights are used."""
    if request.transport is None:
        return False
    client, server = map(request.transport.get_extra_info, ("peername", "sockname"))
    return is_own(client, server)
