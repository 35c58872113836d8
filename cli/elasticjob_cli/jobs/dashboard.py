"""`elasticjob dashboard`: a job's page in the browser, without a token or a certificate."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import Annotated

import typer
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.dashboard import serve_dashboard

from elasticjob_cli.jobs.options import Context, Job, Kubeconfig, Namespace, run


def dashboard(
    job: Job,
    port: Annotated[
        int, typer.Option(help="Of 127.0.0.1; default: one that is free.", min=0, max=65535)
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open it in the browser, if there is one.")] = True,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show a job's dashboard in the browser.

    It is served at a port of this machine, without a certificate or a token, until Ctrl-C. It goes
    on with the next master when the present one is replaced, and shows what the last one has stored
    where there is none.
    """

    async def work(cluster: Cluster) -> None:
        async with serve_dashboard(cluster, job, port=port) as url:
            typer.echo(f"the dashboard of {job} is at {url}; Ctrl-C ends it")
            sys.stdout.flush()
            if browser and _has_browser():
                await asyncio.to_thread(webbrowser.open, url)
            await asyncio.Event().wait()

    run(Access(kubeconfig, context, namespace), work)


def _has_browser() -> bool:
    """Return whether there is a desktop.

    A browser in the terminal would take it from this command.
    """
    desktop = (
        sys.platform in ("darwin", "win32")
        or "DISPLAY" in os.environ
        or "WAYLAND_DISPLAY" in os.environ
    )
    return desktop and sys.stdout.isatty()
