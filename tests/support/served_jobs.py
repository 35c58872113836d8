"""Serves the page of all jobs with jobs that a test makes, without a cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from elasticjob_dashboard.data import Sections
from elasticjob_dashboard.jobs import ShownJob, ShownPool, VisibleJobs, jobs_sections
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams

from tests.support.served_app import served_app

TOKEN = "a-token"


@asynccontextmanager
async def served_jobs(
    jobs: Sequence[ShownJob], pools: Sequence[ShownPool] = ()
) -> AsyncIterator[str]:
    """Serve the page at a port of 127.0.0.1, for clients with `TOKEN`; yields its address."""

    async def sections() -> Sections:
        return {**jobs_sections(VisibleJobs(jobs, pools=pools), time.time()), "problem": b"null"}

    streams = Streams(sections, most=4, seconds=0.1)
    page = Page(all_jobs=True)

    async def show_page(_: web.Request) -> web.Response:
        return web.Response(text=page.text, content_type="text/html", headers=page.headers)

    async def show_changes(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        return await streams.serve(request, {})

    app = web.Application()
    app.add_routes([web.get("/", show_page), web.get("/stream", show_changes)])
    async with served_app(app) as port:
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            streams.end()
