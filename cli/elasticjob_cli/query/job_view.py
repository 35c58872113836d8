"""Shows a job's status: as tables for people, as JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from elasticjob_api.v1 import agent_pb2, job_pb2, shards_pb2
from elasticjob_client.master_queries import JobSnapshot
from google.protobuf.json_format import MessageToDict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob_cli.query.autoscaling import is_of_interest, render_autoscaling
from elasticjob_cli.query.formatting import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_enum,
    format_timestamp,
    key_value_table,
    plain_table,
)


def as_json(snapshot: JobSnapshot) -> str:
    """Return one line.

    The status in protobuf's own JSON (64-bit numbers as text), `members` and `autoscaling`.
    """

    def fields(
        message: job_pb2.JobStatus | agent_pb2.Member | job_pb2.Autoscaling,
    ) -> dict[str, object]:
        result: dict[str, object] = MessageToDict(
            message, always_print_fields_with_no_presence=True
        )
        return result

    members = [fields(member) | {"rank": snapshot.rank(member)} for member in _ordered(snapshot)]
    more = {"members": members, "autoscaling": fields(snapshot.autoscaling)}
    return json.dumps(fields(snapshot.status) | more)


def as_text(snapshot: JobSnapshot) -> RenderableType:
    """Return a few lines about the job, a row per member, a row per data set, and what the auto-scaler knows."""
    parts: list[RenderableType] = [_summary(snapshot.status), Text(), _members(snapshot)]
    if snapshot.status.datasets:
        parts += [Text(), _datasets(snapshot.status.datasets)]
    if is_of_interest(snapshot.autoscaling):
        parts += [Text(), render_autoscaling(snapshot.autoscaling)]
    return Group(*parts)


def _summary(status: job_pb2.JobStatus) -> Table:
    progress = status.progress
    rows = [
        ("Job", f"{status.namespace}/{status.job_name}"),
        ("Phase", format_enum(job_pb2.JobPhase.Name(status.phase), "JOB_PHASE_")),
        ("World", f"round {status.round}, size {status.world_size}"),
        ("Step", _steps(progress)),
        (
            "Rate",
            f"{progress.samples_per_second:.5g} samples/s"
            if progress.samples_per_second
            else UNKNOWN,
        ),
        ("To go", format_duration(progress.eta_seconds) if progress.last_report_time else UNKNOWN),
    ]
    if progress.metrics:
        rows.append(
            (
                "Metrics",
                ", ".join(
                    f"{name} {value:.4g}" for name, value in sorted(progress.metrics.items())
                ),
            )
        )
    if progress.stalled_since:
        rows.append(("Stalled", f"since {format_timestamp(progress.stalled_since)}"))
    if progress.stragglers:
        rows.append(("Stragglers", ", ".join(progress.stragglers)))
    if status.master_starts > 1:
        rows.append(("Master", f"started {status.master_starts} times"))
    return key_value_table(rows)


def _steps(progress: job_pb2.Progress) -> str:
    if not progress.total_steps:
        return str(progress.step)
    return (
        f"{progress.step}/{progress.total_steps} ({100 * progress.step // progress.total_steps} %)"
    )


def _members(snapshot: JobSnapshot) -> Table:
    rows = plain_table("ROLE", "INDEX", "RANK", "POD", "STATE", "ADDRESS", "STEP", "CPU", "MEMORY")
    for member in _ordered(snapshot):
        rank = snapshot.rank(member)
        rows.add_row(
            member.role,
            str(member.index),
            UNKNOWN if rank is None else str(rank),
            member.pod_name,
            format_enum(agent_pb2.MemberState.Name(member.state), "MEMBER_STATE_"),
            member.address,
            str(member.step),
            f"{member.usage.cpu_cores:.2f}" if member.HasField("usage") else UNKNOWN,
            format_bytes(member.usage.memory_bytes) if member.HasField("usage") else UNKNOWN,
        )
    return rows


def _datasets(ledgers: Iterable[shards_pb2.Ledger]) -> Table:
    rows = plain_table("DATASET", "SHARDS", "DONE", "LEASED", "WAITING", "RETURNED", "FAILED")
    for ledger in ledgers:
        counts = (
            ledger.total,
            ledger.done,
            ledger.leased,
            ledger.waiting,
            ledger.returned,
            ledger.failed,
        )
        rows.add_row(ledger.dataset, *map(str, counts))
    return rows


def _ordered(snapshot: JobSnapshot) -> list[agent_pb2.Member]:
    return sorted(
        snapshot.members, key=lambda member: (member.role, member.index, member.incarnation)
    )
