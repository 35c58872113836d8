"""`elasticjob dashboard`: serves a job's dashboard on this machine and opens the browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import Annotated

import typer
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.dashboard import serve_dashboard

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs.options import Job, for_cluster, run_on_job


@for_cluster
def dashboard(
    job: Job,
    access: Access,
    port: Annotated[
        int, typer.Option(help="Port of 127.0.0.1; default: a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option(help="Open the page in a browser, if there is a desktop.")
    ] = True,
) -> None:
    """Show a job's dashboard in the browser.

    It is served at a port of this machine, without a certificate or a token, until Ctrl-C. If the
    job's master is replaced, it continues with the next one. If the job has no master, it shows
    the last answers that a master has stored.
    """

    async def work(cluster: Cluster, found: ElasticJob) -> None:
        name = found.metadata.name
        async with serve_dashboard(cluster, name, port=port) as url:
            echo(f"the dashboard of {name} is at {url}; Ctrl-C ends it")
            sys.stdout.flush()
            if browser and _has_browser():
                await asyncio.to_thread(webbrowser.open, url)
            await asyncio.Event().wait()

    run_on_job(access, job, work)


def _has_browser() -> bool:
    """Return whether there is a desktop; a browser in the terminal would hide this command."""
    desktop = (
        sys.platform in ("darwin", "win32")
        or "DISPLAY" in os.environ
        or "WAYLAND_DISPLAY" in os.environ
    )
    return desktop and sys.stdout.isatty()
