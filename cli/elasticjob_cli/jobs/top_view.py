"""A live view of a job: progress, the rate's latest course, and a row per member. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.v1 import agent_pb2, job_pb2
from elasticjob_client.master_queries import JobSnapshot
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob_cli.query.formatting import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_enum,
    plain_table,
)

MOST_MEMBERS = 30
"""Rows; of more members it is said how many there are."""
BAR_WIDTH = 30
SPARK_WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"


def bar(done: float, width: int = BAR_WIDTH) -> str:
    """Return a bar that is filled up to a part, which is 0 to 1."""
    eighths = round(max(0.0, min(done, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "░")


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Return the last values as a row of bars, from 0 to the largest; empty for none."""
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(8 * max(each, 0.0) / most), 7)] for each in shown)


def job_view(snapshot: JobSnapshot, history: Sequence[job_pb2.Sample]) -> RenderableType:
    """Return a job as its master tells it."""
    status = snapshot.status
    progress = snapshot.status.progress
    phase = format_enum(job_pb2.JobPhase.Name(status.phase), "JOB_PHASE_")
    head = Text.assemble(
        (f"{status.namespace}/{status.job_name}", "bold"),
        f"  {phase}, world of {status.world_size}",
    )
    parts: list[RenderableType] = [head]
    if progress.total_steps:
        done = progress.step / progress.total_steps
        left = (
            f"  {format_duration(progress.eta_seconds)} to go" if progress.eta_seconds >= 0 else ""
        )
        steps = f"  {progress.step}/{progress.total_steps} ({100 * done:.0f} %)"
        parts.append(Text.assemble((bar(done), "cyan"), steps, left))
    else:
        parts.append(Text(f"step {progress.step}"))
    rates = [sample.samples_per_second for sample in history]
    if rates:
        most = max(progress.samples_per_second, *rates[-SPARK_WIDTH:])
        now = f"  {progress.samples_per_second:.5g} samples/s, at most {most:.5g}"
        parts.append(Text.assemble((sparkline(rates), "green"), now))
    if progress.metrics:
        parts.append(
            Text(
                ", ".join(f"{name} {value:.4g}" for name, value in sorted(progress.metrics.items()))
            )
        )
    if progress.stalled_since:
        parts.append(Text("stalled: no step is finished although members live", style="red"))
    return Group(*parts, _members(snapshot))


def _members(snapshot: JobSnapshot) -> RenderableType:
    table = plain_table("RANK", "MEMBER", "STATE", "STEP", "STEP TIME", "CPU", "MEMORY", "GPU")

    def place(member: agent_pb2.Member) -> tuple[int, str, int]:
        rank = snapshot.rank(member)
        return (len(snapshot.members) if rank is None else rank, member.role, member.index)

    members = sorted(snapshot.members, key=place)
    for each in members[:MOST_MEMBERS]:
        rank = snapshot.rank(each)
        usage = each.usage
        cells = (
            UNKNOWN if rank is None else str(rank),
            f"{each.role}-{each.index}",
            format_enum(agent_pb2.MemberState.Name(each.state), "MEMBER_STATE_"),
            str(each.step),
            f"{each.step_seconds:.3g} s" if each.step_seconds else UNKNOWN,
            f"{usage.cpu_cores:.2f}",
            format_bytes(usage.memory_bytes),
            f"{usage.gpu_percent} %" if usage.gpu_memory_bytes else UNKNOWN,
        )
        table.add_row(*map(Text, cells), style="red" if each.straggler else "")
    more = len(members) - MOST_MEMBERS
    return Group(table, Text(f"and {more} more members")) if more > 0 else table


def jobs_view(jobs: Sequence[ElasticJob], rates: dict[str, list[float]]) -> Table:
    """Return a row per job, with the course of its rate; `rates`: by the job's UID."""
    table = plain_table("NAME", "PHASE", "WORKERS", "PROGRESS", "RATE", "", "ETA")
    for job in jobs:
        progress = job.status.progress
        total = (progress.total_steps if progress else None) or 0
        filled = bar(progress.step / total, 10) if progress and total else ""
        steps = progress.steps if progress else ""
        cells = (
            job.metadata.name,
            job.status.phase or "Pending",
            job.status.workers or UNKNOWN,
            f"{filled} {steps}".strip() or UNKNOWN,
            (progress.rate if progress else "") or UNKNOWN,
            sparkline(rates.get(job.metadata.uid, []), 12),
            (progress.eta if progress else "") or UNKNOWN,
        )
        table.add_row(*map(Text, cells))
    return table
