"""`elasticjob logs`.

What the members of a job write, with their ranks, also while they come and go.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated

import typer
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.job_logs import job_logs
from elasticjob_client.logs import LogLine, LogOptions, parse_duration
from elasticjob_client.members import Choice, parse_ranks

from elasticjob_cli.jobs.completion import complete_role
from elasticjob_cli.jobs.options import Context, Job, Kubeconfig, Namespace, run

_COLORS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Of terminals, by rank."""
_FLUSH_SECONDS = 0.05


def logs(
    job: Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    rank: Annotated[
        str | None, typer.Option(help="Ranks, such as 0 or 0,3.", metavar="RANKS")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Of all members.")] = False,
    role: Annotated[
        str | None,
        typer.Option(
            help="Of this role's members; master is the job's master.", autocompletion=complete_role
        ),
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the container before, in the same pod.")
    ] = False,
    tail: Annotated[int | None, typer.Option(help="Only so many of the last lines.", min=0)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only lines that are not older: 30s, 5m, 2h.")
    ] = None,
    timestamps: Annotated[bool, typer.Option(help="Begin each line with its time.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what a job's members write, by rank; -f follows them.

    By default it is the member with rank 0. With -f it goes on with the members that come, and ends
    with the job.
    """

    async def work(cluster: Cluster) -> None:
        if previous and follow:
            raise ClientError(
                "what --previous shows has ended, so there is nothing to follow: give one of both"
            )
        if every and rank is not None:
            raise ClientError("give either --rank or --all")
        choice = Choice(parse_ranks(rank) if rank is not None else (), role, every)
        seconds = None if since is None else parse_duration(since)
        options = LogOptions(tail, seconds, previous, timestamps)
        await print_logs(cluster, job, choice, options, follow=follow)

    try:
        run(Access(kubeconfig, context, namespace), work)
    except BrokenPipeError:  # what reads the lines, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def print_logs(
    cluster: Cluster, name: str, choice: Choice, options: LogOptions, *, follow: bool
) -> None:
    """Print the logs of those that are meant; with `follow` until the job has ended.

    Raises `ClientError`.
    """
    write = _writer()
    tell = partial(typer.echo, err=True)
    async with aclosing(
        job_logs(cluster, name, choice, options, follow=follow, tell=tell)
    ) as lines:
        async for line in lines:
            write(line)


def _writer() -> Callable[[LogLine], None]:
    """Return what prints a line.

    What was printed is seen at once on a terminal, elsewhere a moment later.
    """
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    waiting = False

    def flush() -> None:
        nonlocal waiting
        waiting = False
        sys.stdout.flush()

    def write(line: LogLine) -> None:
        nonlocal waiting
        sys.stdout.write(f"{prefix(line, colored=colored)} {line.text}\n")
        if not waiting:
            waiting = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, flush)

    return write


def prefix(line: LogLine, *, colored: bool) -> str:
    """Return whose line it is, such as [worker-1 rank 0]; a member keeps its color."""
    rank = "" if line.rank is None else f" rank {line.rank}"
    text = f"[{line.role}-{line.index}{rank}]"
    if not colored:
        return text
    number = line.index if line.rank is None else line.rank
    return f"\033[{_COLORS[number % len(_COLORS)]}m{text}\033[0m"
