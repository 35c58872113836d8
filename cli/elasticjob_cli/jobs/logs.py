"""`elasticjob logs`: prints what the members of a job write, with their ranks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import WrongArgument
from elasticjob_client.job_logs import job_logs
from elasticjob_client.logs import LogLine, LogOptions, parse_duration
from elasticjob_client.members import Choice, parse_ranks

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.local_runs import RunInfo, local_run
from elasticjob_cli.common.options import AnyRole, Job, reported, run_on_job
from elasticjob_cli.common.streams import discard, echo

_COLORS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Terminal colors, chosen by rank."""
_FLUSH_SECONDS = 0.05


@for_cluster
def logs(
    job: Job,
    access: Access,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Follow until the job has ended.")
    ] = False,
    rank: Annotated[str | None, Option(help="Ranks, such as 0 or 0,3.", metavar="RANKS")] = None,
    every: Annotated[bool, Option("--all", help="All members.")] = False,
    role: AnyRole = None,
    previous: Annotated[
        bool, Option("--previous", "-p", help="The previous container of the same pod.")
    ] = False,
    tail: Annotated[int | None, Option(help="Only this many of the last lines.", min=0)] = None,
    since: Annotated[str | None, Option(help="Only lines that are not older: 30s, 5m, 2h.")] = None,
    timestamps: Annotated[bool, Option(help="Begin each line with its time.")] = False,
) -> None:
    """Show the output of a job's members, by rank; -f follows it.

    The default is the member with rank 0. With -f the command also follows members that join later,
    and ends with the job.
    """
    with reported():
        if previous and follow:
            raise WrongArgument(
                "give either --previous or --follow: a previous container has ended"
            )
        if every and rank is not None:
            raise WrongArgument("give either --rank or --all")
        choice = Choice(() if rank is None else parse_ranks(rank), role, every)
        seconds = None if since is None else parse_duration(since)
        local = local_run(job, access)
        if local is not None:
            if role is not None or previous or seconds is not None or timestamps:
                raise WrongArgument("the log of a run takes --follow, --rank and --tail only")
            _print_log_of_run(local, choice.ranks, tail, follow=follow)
            return
    options = LogOptions(tail, seconds, previous, timestamps)

    async def work(cluster: Cluster, found: ElasticJob) -> None:
        await print_logs(cluster, found.metadata.name, choice, options, follow=follow)

    try:
        run_on_job(access, job, work)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stdout = discard(1)


def _print_log_of_run(
    info: RunInfo, ranks: Sequence[int], tail: int | None, *, follow: bool
) -> None:
    from elasticjob_cli.run.showing import print_log

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    asyncio.run(print_log(info, ranks=ranks, tail=tail, follow=follow, write=write))


async def print_logs(
    cluster: Cluster, name: str, choice: Choice, options: LogOptions, *, follow: bool
) -> None:
    """Print the logs of the chosen members; with `follow` until the job has ended.

    Raises `ClientError`.
    """
    write = _writer()
    notify = partial(echo, err=True)
    async with aclosing(
        job_logs(cluster, name, choice, options, follow=follow, notify=notify)
    ) as lines:
        async for line in lines:
            write(line)


def _writer() -> Callable[[LogLine], None]:
    """Return a function that prints a line, and flushes the output a moment later."""
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    flush_is_due = False

    def flush() -> None:
        nonlocal flush_is_due
        flush_is_due = False
        sys.stdout.flush()

    def write(line: LogLine) -> None:
        nonlocal flush_is_due
        sys.stdout.write(f"{prefix(line, colored=colored)} {line.text}\n")
        if not flush_is_due:
            flush_is_due = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, flush)

    return write


def prefix(line: LogLine, *, colored: bool) -> str:
    """Return the member of a line, such as [worker-1 rank 0], in the color of its rank."""
    rank = "" if line.rank is None else f" rank {line.rank}"
    text = f"[{line.role}-{line.index}{rank}]"
    if not colored:
        return text
    number = line.index if line.rank is None else line.rank
    return f"\033[{_COLORS[number % len(_COLORS)]}m{text}\033[0m"
