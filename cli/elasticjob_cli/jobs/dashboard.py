"""`elasticjob dashboard`: serves the page of a job, or of all, and opens the browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import Annotated

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.jobs_page import serve_jobs

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.local_runs import RunInfo, local_run
from elasticjob_cli.common.options import complete_job, reported, run, run_on_job
from elasticjob_cli.common.streams import echo


@for_cluster
def dashboard(
    access: Access,
    job: Annotated[
        str | None,
        Argument(
            help="Name of the ElasticJob, or its unique beginning; default: all jobs.",
            metavar="[JOB]",
            autocompletion=complete_job,
        ),
    ] = None,
    port: Annotated[
        int, Option(help="Port of 127.0.0.1; default: a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, Option(help="Open the page in a browser, if there is a desktop.")
    ] = True,
) -> None:
    """Show a job's dashboard, or all jobs, in the browser.

    It is served at a port of this machine until Ctrl-C, without a certificate. If a job's master
    is replaced, it continues with the next one. If the job has no master, it shows the last
    answers that a master has stored. Without a name it shows the jobs of all namespaces in which
    you may list jobs, or of the one of -n, at the printed address only.
    """

    async def show(url: str, what: str) -> None:
        echo(f"the dashboard of {what} is at {url}; Ctrl-C ends it")
        sys.stdout.flush()
        if browser and _has_browser():
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()

    async def one(cluster: Cluster, found: ElasticJob) -> None:
        name = found.metadata.name
        async with serve_dashboard(cluster, name, port=port) as url:
            await show(url, name)

    async def all_jobs(cluster: Cluster) -> None:
        async with serve_jobs(cluster, namespace=access.namespace, port=port) as url:
            await show(url, "all jobs")

    async def of_run(info: RunInfo) -> None:
        from elasticjob_cli.run.showing import dashboard_of_run

        async with dashboard_of_run(info, port=port) as url:
            await show(url, f"run {info.name}")

    with reported():
        local = local_run(job, access)
        if local is not None:
            asyncio.run(of_run(local))
            return
    if job is None:
        run(access, all_jobs)
    else:
        run_on_job(access, job, one)


def _has_browser() -> bool:
    """Return whether there is a desktop; a browser in the terminal would hide this command."""
    desktop = (
        sys.platform in ("darwin", "win32")
        or "DISPLAY" in os.environ
        or "WAYLAND_DISPLAY" in os.environ
    )
    return desktop and sys.stdout.isatty()
