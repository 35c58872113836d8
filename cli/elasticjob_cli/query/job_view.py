"""Renders a job's status: as tables for people, as JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from elasticjob_api.v1 import agent_pb2, job_pb2, shards_pb2
from elasticjob_client.master_queries import JobSnapshot
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Group, RenderableType
from rich.table import Table

from elasticjob_cli.query.autoscaling import is_of_interest, render_autoscaling
from elasticjob_cli.query.formatting import (
    UNKNOWN,
    add_row,
    format_bytes,
    format_duration,
    format_member_state,
    format_metrics,
    format_phase,
    format_rank,
    format_rate,
    format_timestamp,
    key_value_table,
    plain_table,
    plain_text,
)

_COUNTS = ("total", "done", "leased", "waiting", "returned", "failed")


def as_json(snapshot: JobSnapshot) -> str:
    """Return one line: the fields of the status, `members`, `autoscaling` and `jobPhase`.

    Fields have the form of protobuf's own JSON, in which 64-bit numbers are text.
    """
    members = [
        _fields(member) | {"rank": snapshot.rank(member)} for member in in_order(snapshot.members)
    ]
    more: dict[str, object] = {
        "members": members,
        "autoscaling": _fields(snapshot.autoscaling),
        "jobPhase": snapshot.job_phase,
    }
    return json.dumps(_fields(snapshot.status) | more)


def _fields(message: Message) -> dict[str, object]:
    fields: dict[str, object] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return fields


def as_text(snapshot: JobSnapshot) -> RenderableType:
    """Return a summary, a row per member, a row per data set, and the auto-scaler's knowledge."""
    parts: list[RenderableType] = [_summary(snapshot), plain_text(), _members(snapshot)]
    if snapshot.status.datasets:
        parts += [plain_text(), _datasets(snapshot.status.datasets)]
    if is_of_interest(snapshot.autoscaling):
        parts += [plain_text(), render_autoscaling(snapshot.autoscaling)]
    return Group(*parts)


def _summary(snapshot: JobSnapshot) -> Table:
    status = snapshot.status
    progress = status.progress
    rows = [
        ("Job", f"{status.namespace}/{status.job_name}"),
        ("Phase", snapshot.job_phase or format_phase(status.phase)),
        ("World", f"round {status.round}, size {status.world_size}"),
        ("Step", _steps(progress)),
        ("Rate", format_rate(progress.samples_per_second)),
        ("To go", format_duration(progress.eta_seconds) if progress.last_report_time else UNKNOWN),
    ]
    if progress.metrics:
        rows.append(("Metrics", format_metrics(progress.metrics)))
    if progress.stalled_since:
        rows.append(("Stalled", f"since {format_timestamp(progress.stalled_since)}"))
    if progress.stragglers:
        rows.append(("Stragglers", ", ".join(progress.stragglers)))
    if status.master_starts > 1:
        rows.append(("Master", f"started {status.master_starts} times"))
    return key_value_table(rows)


def _steps(progress: job_pb2.Progress) -> str:
    total = progress.total_steps
    if not total:
        return str(progress.step)
    return f"{progress.step}/{total} ({100 * progress.step // total} %)"


def _members(snapshot: JobSnapshot) -> RenderableType:
    if not snapshot.members:
        name = snapshot.status.job_name
        return plain_text(f"no members now; `elasticjob describe {name}` shows its pods")
    rows = plain_table("ROLE", "INDEX", "RANK", "POD", "STATE", "ADDRESS", "STEP", "CPU", "MEMORY")
    for member in in_order(snapshot.members):
        cpu = UNKNOWN
        memory = UNKNOWN
        if member.HasField("usage"):
            cpu = f"{member.usage.cpu_cores:.2f}"
            memory = format_bytes(member.usage.memory_bytes)
        add_row(
            rows,
            member.role,
            str(member.index),
            format_rank(snapshot.rank(member)),
            member.pod_name,
            format_member_state(member.state),
            member.address,
            str(member.step),
            cpu,
            memory,
        )
    return rows


def _datasets(ledgers: Iterable[shards_pb2.Ledger]) -> Table:
    rows = plain_table("DATASET", "SHARDS", "DONE", "LEASED", "WAITING", "RETURNED", "FAILED")
    for ledger in ledgers:
        add_row(rows, ledger.dataset, *(str(getattr(ledger, count)) for count in _COUNTS))
    return rows


def in_order(members: Iterable[agent_pb2.Member]) -> list[agent_pb2.Member]:
    """Return members by role, index and incarnation."""
    return sorted(members, key=lambda member: (member.role, member.index, member.incarnation))
