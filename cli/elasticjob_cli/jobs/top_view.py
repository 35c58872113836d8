"""Renders a job live: progress, latest rates, and a row per member. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJob, Progress
from elasticjob_api.v1 import agent_pb2, job_pb2
from elasticjob_client.master_queries import JobSnapshot
from rich.console import Group, RenderableType
from rich.table import Table

from elasticjob_cli.query.formatting import (
    UNKNOWN,
    add_row,
    format_bytes,
    format_duration,
    format_gpu,
    format_member_state,
    format_metrics,
    format_phase,
    format_rank,
    format_step_time,
    plain_table,
    plain_text,
)

MOST_MEMBERS = 30
"""Rows; a last line has the number of further members."""
BAR_WIDTH = 30
SPARK_WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉"


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


def job_view(snapshot: JobSnapshot, history: Sequence[job_pb2.Sample]) -> RenderableType:
    """Return the view of a job from the answers of its master."""
    status = snapshot.status
    progress = status.progress
    name = f"{status.namespace}/{status.job_name}"
    state = f"  {format_phase(status.phase)}, world of {status.world_size}"
    parts: list[RenderableType] = [plain_text(name, "bold").append(state), _steps(progress)]
    rates = [sample.samples_per_second for sample in history]
    if rates:
        most = max(progress.samples_per_second, *rates[-SPARK_WIDTH:])
        now = f"  {progress.samples_per_second:.5g} samples/s, at most {most:.5g}"
        parts.append(plain_text(sparkline(rates), "green").append(now))
    if progress.metrics:
        parts.append(plain_text(format_metrics(progress.metrics)))
    if progress.stalled_since:
        parts.append(plain_text("stalled: no step is finished although members live", style="red"))
    return Group(*parts, _members(snapshot))


def _steps(progress: job_pb2.Progress) -> RenderableType:
    if not progress.total_steps:
        return plain_text(f"step {progress.step}")
    done = progress.step / progress.total_steps
    steps = f"  {progress.step}/{progress.total_steps} ({100 * done:.0f} %)"
    if progress.eta_seconds >= 0:
        steps += f"  {format_duration(progress.eta_seconds)} to go"
    return plain_text(bar(done), "cyan").append(steps)


def _members(snapshot: JobSnapshot) -> RenderableType:
    table = plain_table("RANK", "MEMBER", "STATE", "STEP", "STEP TIME", "CPU", "MEMORY", "GPU")

    def place(member: agent_pb2.Member) -> tuple[int, str, int]:
        rank = snapshot.rank(member)
        if rank is None:
            rank = len(snapshot.members)
        return rank, member.role, member.index

    members = sorted(snapshot.members, key=place)
    for each in members[:MOST_MEMBERS]:
        cells = (
            format_rank(snapshot.rank(each)),
            f"{each.role}-{each.index}",
            format_member_state(each.state),
            str(each.step),
            format_step_time(each.step_seconds),
            f"{each.usage.cpu_cores:.2f}",
            format_bytes(each.usage.memory_bytes),
            format_gpu(each.usage),
        )
        add_row(table, *cells, style="red" if each.straggler else "")
    more = len(members) - MOST_MEMBERS
    if more <= 0:
        return table
    return Group(table, plain_text(f"and {more} more members"))


def jobs_view(jobs: Sequence[ElasticJob], rates: dict[str, list[float]]) -> Table:
    """Return a row per job with its latest rates, which are given by the job's UID."""
    table = plain_table("NAME", "PHASE", "WORKERS", "PROGRESS", "RATE", "", "ETA")
    for job in jobs:
        progress = job.status.progress or Progress()
        steps = progress.steps
        if progress.total_steps:
            steps = f"{bar(progress.step / progress.total_steps, 10)} {steps}".strip()
        cells = (
            job.metadata.name,
            job.status.phase or "Pending",
            job.status.workers or UNKNOWN,
            steps or UNKNOWN,
            progress.rate or UNKNOWN,
            sparkline(rates.get(job.metadata.uid, []), 12),
            progress.eta or UNKNOWN,
        )
        add_row(table, *cells)
    return table
