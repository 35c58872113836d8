"""`elasticjob top`: shows a job, or all jobs, live until the job has ended, or Ctrl-C."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated

from elasticjob_api.elasticjob import ElasticJob, Progress
from elasticjob_api.v1 import agent_pb2, job_pb2
from elasticjob_client.access import Access
from elasticjob_client.answers import Master, open_master, stored_master
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import has_ended, list_jobs
from elasticjob_client.master import wait_for_starting_master

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_duration,
    format_metrics,
    plain_text,
    table_of,
)
from elasticjob_cli.common.local_runs import local_run
from elasticjob_cli.common.options import reported, run, run_on_job
from elasticjob_cli.common.printing import readable
from elasticjob_cli.common.tables import Page, Shown, Table, Text, show
from elasticjob_cli.query.members import members_table
from elasticjob_cli.query.topics import format_phase

MOST_MEMBERS = 30
"""Rows; a last line has the number of further members."""
BAR_WIDTH = 30
SPARK_WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉"
_SECONDS = 2.0
_RECONNECT_SECONDS = 1.0


@for_cluster
def top(
    access: Access,
    job: Annotated[
        str | None,
        Argument(help="Name of the ElasticJob or run; default: all jobs.", metavar="[JOB]"),
    ] = None,
    once: Annotated[
        bool,
        Option("--once", help="Show it once; the default if the output is not a terminal."),
    ] = False,
) -> None:
    """Show jobs live: progress, rate, members.

    For one job it shows each member's rank, step time, CPU, memory and GPU.
    """
    live = not once and sys.stdout.isatty()
    with reported():
        local = local_run(job, access)
        if local is not None:
            from elasticjob_cli.run.showing import frames_of_run

            asyncio.run(_show(frames_of_run(local, _frames), live=live))
            return
    if job is None:
        run(access, lambda cluster: _top(cluster, None, live=live))
    else:
        run_on_job(
            access, job, lambda cluster, found: _top(cluster, found.metadata.name, live=live)
        )


async def _top(cluster: Cluster, job: str | None, *, live: bool) -> None:
    await _show(_jobs(cluster) if job is None else _job(cluster, job, live=live), live=live)


async def _show(frames: AsyncGenerator[Shown, None], *, live: bool) -> None:
    async with aclosing(frames):
        if not live:
            show(await anext(frames))
            return
        last: Shown = Text("")
        from rich.live import Live

        with Live(auto_refresh=False, screen=True) as screen:
            async for last in frames:
                screen.update(last, refresh=True)
        show(last)  # leaving the screen has removed the last frame


async def _jobs(cluster: Cluster) -> AsyncGenerator[Shown, None]:
    """Yield a table of all jobs of the namespace every few seconds.

    It also shows the rates that were seen since the command started.
    """
    rates: dict[str, list[float]] = {}
    while True:
        jobs = list(readable(await list_jobs(cluster), ElasticJob))
        for each in jobs:
            rate = (each.status.progress or Progress()).samples_per_second or 0.0
            rates.setdefault(each.metadata.uid, []).append(rate)
        if jobs:
            yield jobs_view(jobs, rates)
        else:
            yield plain_text(f"no jobs in namespace {cluster.namespace}")
        await asyncio.sleep(_SECONDS)


async def _job(cluster: Cluster, job: str, *, live: bool) -> AsyncGenerator[Shown, None]:
    """Yield a job at each change, from its present and later masters, until it has ended."""
    last: Shown | None = None
    while True:
        try:
            found = await wait_for_starting_master(cluster, job)
            async with open_master(cluster, found) as master, aclosing(_frames(master)) as frames:
                async for frame in frames:
                    last = frame
                    yield frame
        except ClientError as error:
            if last is None:
                stored = await stored_master(cluster, job, error)
                phase = stored.answers.report.outcome.phase
                yield Page(job_view(stored.answers, phase=phase), plain_text(stored.why))
                return
            if not live:
                raise
            if await has_ended(cluster, job):
                return
            yield Page(last, plain_text(f"no news: {error}", style="red"))
        await asyncio.sleep(_RECONNECT_SECONDS)


async def _frames(master: Master) -> AsyncGenerator[Shown, None]:
    async with aclosing(master.watch("Status")) as changes:
        async for status in changes:
            answers = await master.snapshot(status)
            answers.history.CopyFrom(await master.get("History"))
            yield job_view(answers)


def bar(done: float, width: int = BAR_WIDTH) -> str:
    """Return a bar that is filled up to a part from 0 to 1."""
    eighths = round(max(0.0, min(done, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    filled = "█" * whole
    if rest:
        filled += _PARTS[rest]
    return filled.ljust(width, "░")


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Return the last values as a row of bars, from 0 to the largest; empty for none."""
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(8 * max(each, 0.0) / most), 7)] for each in shown)


def job_view(answers: job_pb2.StoredAnswers, *, phase: str = "") -> Shown:
    """Return the view of a job from the answers of its master; `phase`: its own, without one."""
    status = answers.status
    progress = status.progress
    name = f"{status.namespace}/{status.job_name}"
    state = f"  {phase or f'{format_phase(status.phase)}, world of {status.world_size}'}"
    parts: list[Shown] = [plain_text(name, "bold").append(state), _steps(progress)]
    rates = [sample.samples_per_second for sample in answers.history.samples]
    if rates:
        most = max(progress.samples_per_second, *rates[-SPARK_WIDTH:])
        now = f"  {progress.samples_per_second:.5g} samples/s, at most {most:.5g}"
        parts.append(plain_text(sparkline(rates), "green").append(now))
    if progress.metrics:
        parts.append(plain_text(format_metrics(progress.metrics)))
    if progress.stalled_since:
        parts.append(plain_text("stalled: no step is finished although members live", style="red"))
    members = sorted(answers.members.members, key=lambda member: _place(member, answers.ranks))
    titles = ("RANK", "MEMBER", "STATE", "STEP", "STEP TIME", "CPU", "MEMORY", "GPU")
    parts.append(
        members_table(
            members[:MOST_MEMBERS],
            titles,
            answers.ranks,
            style=lambda member: "red" if member.straggler else "",
        )
    )
    if (more := len(members) - MOST_MEMBERS) > 0:
        parts.append(plain_text(f"and {more} more members"))
    return Page(*parts)


def _place(member: agent_pb2.Member, ranks: Mapping[str, int]) -> tuple[float, str, int]:
    """Return the place of a member: by rank; members outside of the world come last."""
    return ranks.get(member.pod_uid, math.inf), member.role, member.index


def _steps(progress: job_pb2.Progress) -> Shown:
    if not progress.total_steps:
        return plain_text(f"step {progress.step}")
    done = progress.step / progress.total_steps
    steps = f"  {progress.step}/{progress.total_steps} ({100 * done:.0f} %)"
    if progress.eta_seconds >= 0:
        steps += f"  {format_duration(progress.eta_seconds)} to go"
    return plain_text(bar(done), "cyan").append(steps)


def jobs_view(jobs: Iterable[ElasticJob], rates: Mapping[str, Sequence[float]]) -> Table:
    """Return a row per job with its latest rates, which are given by the job's UID."""
    columns: dict[str, Callable[[ElasticJob], str]] = {
        "NAME": lambda job: job.metadata.name,
        "PHASE": lambda job: job.status.phase or "Pending",
        "WORKERS": lambda job: job.status.workers or UNKNOWN,
        "PROGRESS": lambda job: _bar_and_steps(job.status.progress or Progress()) or UNKNOWN,
        "RATE": lambda job: (job.status.progress or Progress()).rate or UNKNOWN,
        "": lambda job: sparkline(rates.get(job.metadata.uid, []), 12),
        "ETA": lambda job: (job.status.progress or Progress()).eta or UNKNOWN,
    }
    return table_of(jobs, columns)


def _bar_and_steps(progress: Progress) -> str:
    if not progress.total_steps:
        return progress.steps
    return f"{bar(progress.step / progress.total_steps, 10)} {progress.steps}".strip()
