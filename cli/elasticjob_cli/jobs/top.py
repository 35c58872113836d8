"""`elasticjob top`: shows a job, or all jobs, live until the job has ended, or Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import has_ended, list_jobs
from elasticjob_client.master import wait_for_starting_master
from elasticjob_client.master_queries import Master, open_master
from rich.console import Console, Group, RenderableType
from rich.live import Live

from elasticjob_cli.jobs.options import for_cluster, run, run_on_job
from elasticjob_cli.jobs.printing import console, readable
from elasticjob_cli.jobs.top_view import job_view, jobs_view
from elasticjob_cli.query.formatting import plain_text

_SECONDS = 2.0
_RECONNECT_SECONDS = 1.0


@for_cluster
def top(
    access: Access,
    job: Annotated[
        str | None,
        typer.Argument(help="Name of the ElasticJob; default: all jobs.", metavar="[JOB]"),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Show it once; the default if the output is not a terminal."),
    ] = False,
) -> None:
    """Show jobs live: progress, rate, members.

    For one job it shows each member's rank, step time, CPU, memory and GPU.
    """
    live = not once and sys.stdout.isatty()
    if job is None:
        run(access, lambda cluster: _top(cluster, None, live=live))
    else:
        run_on_job(
            access, job, lambda cluster, found: _top(cluster, found.metadata.name, live=live)
        )


async def _top(cluster: Cluster, job: str | None, *, live: bool) -> None:
    frames = _jobs(cluster) if job is None else _job(cluster, job, live=live)
    async with aclosing(frames):
        if not live:
            console().print(await anext(frames))
            return
        last: RenderableType = ""
        with Live(console=Console(), auto_refresh=False, screen=True) as screen:
            async for last in frames:
                screen.update(last, refresh=True)
        console().print(last)  # leaving the screen has removed the last frame


async def _jobs(cluster: Cluster) -> AsyncGenerator[RenderableType, None]:
    """Yield a table of all jobs of the namespace every few seconds.

    It also shows the rates that were seen since the command started.
    """
    rates: dict[str, list[float]] = {}
    while True:
        jobs = list(readable(await list_jobs(cluster), ElasticJob))
        for each in jobs:
            rates.setdefault(each.metadata.uid, []).append(_rate(each))
        if jobs:
            yield jobs_view(jobs, rates)
        else:
            yield plain_text(f"no jobs in namespace {cluster.namespace}")
        await asyncio.sleep(_SECONDS)


def _rate(job: ElasticJob) -> float:
    progress = job.status.progress
    if progress is None:
        return 0.0
    return progress.samples_per_second or 0.0


async def _job(cluster: Cluster, job: str, *, live: bool) -> AsyncGenerator[RenderableType, None]:
    """Yield a job at each change, from its present and later masters, until it has ended."""
    last: RenderableType | None = None
    while True:
        try:
            found = await wait_for_starting_master(cluster, job)
            async with open_master(cluster, found) as master, aclosing(_frames(master)) as frames:
                async for frame in frames:
                    last = frame
                    yield frame
        except ClientError as error:
            if last is None or not live:
                raise
            if await has_ended(cluster, job):
                return
            yield Group(last, plain_text(f"no news: {error}", style="red"))
        await asyncio.sleep(_RECONNECT_SECONDS)


async def _frames(master: Master) -> AsyncGenerator[RenderableType, None]:
    async with aclosing(master.watch("Status")) as changes:
        async for status in changes:
            snapshot = await master.snapshot(status)
            history = await master.get("History")
            yield job_view(snapshot, history.samples)
