"""`elasticjob top`: how a job, or all jobs, are doing now.

It goes on until the job has ended, or Ctrl-C.
"""

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
from elasticjob_client.master_queries import Master, open_master
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from elasticjob_cli.jobs.options import Context, Kubeconfig, Namespace, run
from elasticjob_cli.jobs.printing import console, readable
from elasticjob_cli.jobs.top_view import SPARK_WIDTH, job_view, jobs_view

_SECONDS = 2.0
_RECONNECT_SECONDS = 1.0


def top(
    job: Annotated[
        str | None,
        typer.Argument(help="Name of the ElasticJob; default: all of them.", metavar="[JOB]"),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Show it once; always, where the output is no terminal.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show live how jobs are doing: progress, rate, members.

    Of a job each member's rank, step time, CPU, memory and GPU, as its master tells them.
    """
    live = not once and sys.stdout.isatty()
    run(Access(kubeconfig, context, namespace), lambda cluster: _top(cluster, job, live=live))


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
        console().print(last)  # of a job that has ended; the screen is as it was before


async def _jobs(cluster: Cluster) -> AsyncGenerator[RenderableType, None]:
    """Yield all jobs of the namespace again and again.

    The course of their rates is what was seen meanwhile.
    """
    rates: dict[str, list[float]] = {}
    while True:
        jobs = list(readable(await list_jobs(cluster), ElasticJob))
        rates = {each.metadata.uid: _longer(rates, each) for each in jobs}
        yield jobs_view(jobs, rates) if jobs else Text(f"no jobs in namespace {cluster.namespace}")
        await asyncio.sleep(_SECONDS)


def _longer(rates: dict[str, list[float]], job: ElasticJob) -> list[float]:
    progress = job.status.progress
    rate = (progress.samples_per_second if progress else None) or 0.0
    return [*rates.get(job.metadata.uid, []), rate][-SPARK_WIDTH:]


async def _job(cluster: Cluster, job: str, *, live: bool) -> AsyncGenerator[RenderableType, None]:
    """Yield a job at each change, by one master after the other, until it has ended."""
    last: RenderableType | None = None
    while True:
        try:
            async with open_master(cluster, job) as master, aclosing(_frames(master)) as frames:
                async for frame in frames:
                    last = frame
                    yield frame
        except ClientError as error:
            if last is None or not live:
                raise
            if await has_ended(cluster, job):
                return
            yield Group(last, Text(f"no news: {error}", style="red"))
        await asyncio.sleep(_RECONNECT_SECONDS)


async def _frames(master: Master) -> AsyncGenerator[RenderableType, None]:
    async with aclosing(master.watch("Status")) as changes:
        async for status in changes:
            snapshot = await master.snapshot(status)
            history = await master.get("History")
            yield job_view(snapshot, history.samples)
