"""Serves the page of all jobs at a port of this machine, with the page of each job below it.

The user's rights apply, because all requests are the user's. The page can change jobs, so it is
served to those only who know its token: it is in the printed address, behind the `#`, which
browsers send to nobody. A page of another site cannot know it, nor can another account.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Annotated

import msgspec
from aiohttp import web
from elasticjob_api.meta import Json
from elasticjob_api.replica_spec import MAX_REPLICAS
from elasticjob_dashboard.data import Sections
from elasticjob_dashboard.jobs import jobs_sections, offered
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams, changes
from elasticjob_kube.errors import KubeError

from elasticjob_client.cluster import Cluster
from elasticjob_client.dashboard import MOST_STREAMS, STREAM_SECONDS, JobPage, refusal
from elasticjob_client.errors import ClientError, NotAllowed
from elasticjob_client.jobs import get_job, set_run_policy
from elasticjob_client.page_server import serve_locally
from elasticjob_client.page_source import LargeAnswers, Turns
from elasticjob_client.scaling import change_size, size_change
from elasticjob_client.visible_jobs import JobsReader, Unauthorized

_MOST_PAGES = 16
"""Pages of jobs whose connections to masters are kept."""
_JOB = "/jobs/{namespace}/{name}"
_LISTED = Page(all_jobs=True, of_all_jobs=True)
_ONE = Page(reads_logs=True, of_all_jobs=True)
HEADERS = {**_LISTED.headers, "Cache-Control": "no-store"}


_POLICIES = {
    "suspend": ({"suspend": True}, "will be suspended"),
    "resume": ({"suspend": False}, "will be resumed"),
    "stop": ({"stop": True}, "will be stopped"),
}


class _Change(msgspec.Struct):
    """The body of a request for a change: which job was shown, and its new size."""

    uid: str
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)] | None = None


@asynccontextmanager
async def serve_jobs(
    cluster: Cluster, *, namespace: str | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve the page of all jobs until the block ends; yields its URL, which contains its token.

    Args:
        cluster: the user's session.
        namespace: the namespace to show; None for all in which the user may list jobs.
        port: a port of 127.0.0.1; 0 for a free one.

    Raises:
        ClientError: no jobs can be listed, or the port is in use.
    """
    token = secrets.token_urlsafe(32)
    async with aclosing(JobsPage(cluster, namespace)) as shown:
        await shown.reader.read()  # raises early if there is nothing to serve

        async def own(request: web.Request) -> JobsPage | None:
            is_known = hmac.compare_digest(token_of(request).encode(), token.encode())
            return shown if is_known else None

        async with serve_locally(routes(own), HEADERS, port=port) as url:
            try:
                yield f"{url}#token={token}"
            finally:
                shown.end_streams()


def token_of(request: web.Request) -> str:
    """Return the bearer token of a request; empty for none."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ").strip()


def routes(
    page_of: Callable[[web.Request], Awaitable[JobsPage | None]],
) -> Sequence[web.RouteDef]:
    """Return the paths of the pages: these contain no data, so only the data needs a token.

    `page_of`: returns the page of the request's user; None if the token is not accepted.
    """

    async def page(request: web.Request) -> web.StreamResponse:
        shown = _ONE if "name" in request.match_info else _LISTED
        return web.Response(text=shown.text, content_type="text/html", headers=shown.headers)

    async def data(request: web.Request) -> web.StreamResponse:
        shown = await page_of(request)
        if shown is None:
            return web.Response(status=401, text="this token is not accepted\n")
        return await shown.answer(request)

    return [
        web.get("/", page),
        web.get(f"{_JOB}/", page),
        web.get("/{what:status|stream}", data),
        web.get(f"{_JOB}/{{what:status|stream|log|logs|other|offers}}", data),
        web.post(f"{_JOB}/{{change:suspend|resume|scale|stop}}", data),
    ]


class JobsPage:
    """Answers the requests of the page of all jobs, and of each job's page, for one user.

    Args:
        cluster: the user's session.
        namespace: the namespace to show; None for all in which the user may list jobs.
        elsewhere: the namespaces that are tried for a user who may not list namespaces; empty: the
            session's.
        local: who reads logs must be a program of this process' account.
        large: the jobs' pages of the server with much data.
        lists: the turns of the server's readers of jobs.

    Attributes:
        reader: reads the jobs.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        *,
        elsewhere: Sequence[str] = (),
        local: bool = True,
        large: LargeAnswers | None = None,
        lists: asyncio.Semaphore | None = None,
    ) -> None:
        self._cluster = cluster
        self._local = local
        self._large = large or LargeAnswers()
        self._turns = Turns()
        self.reader = JobsReader(cluster, namespace, elsewhere=elsewhere, turns=lists)
        self._open: set[asyncio.Transport] = set()
        self._streams = Streams(
            self._sections, most=MOST_STREAMS, seconds=STREAM_SECONDS, among=self._open
        )
        self._pages: dict[tuple[str, str], JobPage] = {}
        """By namespace and name, the one that was used last at the end."""

    async def aclose(self) -> None:
        """End all streams and connections."""
        self.end_streams()
        for page in self._pages.values():
            await page.aclose()

    def end_streams(self) -> None:
        """End all streams at once."""
        for streams in (self._streams, *(page.streams for page in self._pages.values())):
            streams.end()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of the list or of a job's page, or a request for a change."""
        match = request.match_info
        if "change" in match:
            # No page of another site can send this type without the server's consent.
            if request.content_type != "application/json":
                return web.Response(status=415, text="a change is sent as application/json\n")
            try:
                return web.json_response({"done": await self._change(request)})
            except (ClientError, msgspec.DecodeError) as error:
                status = 403 if isinstance(error, NotAllowed) else 200
                return web.json_response({"problem": str(error)}, status=status)
        if match["what"] == "offers":
            return web.json_response(await self._offers(match["namespace"], match["name"]))
        if "name" in match:
            page = await self._page(match["namespace"], match["name"])
            return await page.answer(request, match["what"])
        if match["what"] == "stream":
            return await self._streams.serve(request, HEADERS)
        try:
            body = changes({}, await self._read())
        except ClientError as error:
            return refusal(error)
        return web.Response(body=body, content_type="application/json")

    async def _read(self) -> Sections:
        """Return the list's data. Raises `ClientError`."""
        return {**jobs_sections(await self.reader.read(), time.time()), "problem": b"null"}

    async def _sections(self) -> Sections:
        try:
            return await self._read()
        except ClientError as error:
            if isinstance(error, Unauthorized) and not self._local:
                self.end_streams()  # the browser asks again, and is asked for another token
            return {"problem": json.dumps(str(error)).encode()}

    async def _page(self, namespace: str, name: str) -> JobPage:
        key = namespace, name
        page = self._pages.pop(key, None)
        if page is None:
            cluster = replace(self._cluster, namespace=namespace)
            page = JobPage(
                cluster,
                name,
                _ONE,
                open_streams=self._open,
                turns=self._turns,
                large=self._large,
                local=self._local,
            )
        self._pages[key] = page
        unread = [each for each in self._pages if not self._pages[each].streams.is_read]
        if len(self._pages) > _MOST_PAGES and unread[0] != key:
            await self._pages.pop(unread[0]).aclose()
        return page

    async def _offers(self, namespace: str, name: str) -> Json:
        """Return the changes that the user may make; none of a job that cannot be read."""
        try:
            job = await get_job(replace(self._cluster, namespace=namespace), name)
            rights = await self.reader.rights_in([namespace])
        except (ClientError, KubeError):
            return {"offers": []}
        return offered(job, rights[namespace])

    async def _change(self, request: web.Request) -> str:
        """Change a job as the user asks; return what was done. Raises `ClientError`."""
        match = request.match_info
        cluster = replace(self._cluster, namespace=match["namespace"])
        name = match["name"]
        asked = msgspec.json.decode(await request.read(), type=_Change)
        job = await get_job(cluster, name)
        if job.metadata.uid != asked.uid:
            raise ClientError("another job has this name now; look at it first")
        if match["change"] == "scale":
            if asked.size is None:
                raise ClientError("size is missing: give the new number of members")
            change = size_change(asked.size, role=job.spec.autoscaling.role)
            return (await change_size(cluster, job, change)).done
        fields, done = _POLICIES[match["change"]]
        await set_run_policy(cluster, name, **fields)
        return done
