"""The topics of `elasticjob query` besides the job's status, such as members and history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticjob_api.v1 import job_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import RenderableType

from elasticjob_cli.query.autoscaling import render_autoscaling
from elasticjob_cli.query.formatting import (
    UNKNOWN,
    add_row,
    format_bytes,
    format_duration,
    format_gpu,
    format_member_state,
    format_rate,
    format_step_time,
    format_timestamp,
    key_value_table,
    plain_table,
    plain_text,
)
from elasticjob_cli.query.job_view import in_order
from elasticjob_cli.query.report import render_history, render_report, steps_of

_MEMBER_TITLES = (
    "ROLE", "INDEX", "POD", "NODE", "STATE", "STEP", "STEP TIME", "CPU", "MEMORY", "GPU", "REMARK",
)  # fmt: skip


class Topic(StrEnum):
    """The part of a job that a query shows."""

    STATUS = "status"
    MEMBERS = "members"
    PROGRESS = "progress"
    HISTORY = "history"
    PLANS = "plans"
    AUTOSCALING = "autoscaling"
    REPORT = "report"


@dataclass(frozen=True)
class TopicQuery:
    """The query and the rendering of a topic.

    Attributes:
        name: of the RPCs: `Get<name>` and `Watch<name>`.
        render: returns an answer for people.
        incremental: each answer of a watch adds to the earlier ones instead of replacing them.
    """

    name: str
    render: Callable[[Any], RenderableType]
    incremental: bool = False


def as_json(answer: Message) -> str:
    """Return one line in protobuf's own JSON: 64-bit numbers are text, zeros are shown."""
    return json.dumps(MessageToDict(answer, always_print_fields_with_no_presence=True))


def render_members(answer: job_pb2.MemberList) -> RenderableType:
    """Return a row per member: state, step time, resource usage, straggler and unfit node."""
    rows = plain_table(*_MEMBER_TITLES)
    for each in in_order(answer.members):
        remarks = [each.check_problem] if each.check_problem else []
        if each.straggler:
            remarks.insert(0, "straggler")
        add_row(
            rows,
            each.role,
            str(each.index),
            each.pod_name,
            each.node_name or UNKNOWN,
            format_member_state(each.state),
            str(each.step),
            format_step_time(each.step_seconds),
            f"{each.usage.cpu_cores:.2f}",
            format_bytes(each.usage.memory_bytes),
            format_gpu(each.usage),
            "; ".join(remarks),
        )
    return rows


def render_progress(answer: job_pb2.Progress) -> RenderableType:
    """Return a line per value."""
    steps_rate = UNKNOWN
    if answer.steps_per_second:
        steps_rate = f"{answer.steps_per_second:.4g} a second"
    lines = [
        ("Step", steps_of(answer)),
        ("Rate", format_rate(answer.samples_per_second)),
        ("Steps", steps_rate),
        ("To go", format_duration(answer.eta_seconds) if answer.last_report_time else UNKNOWN),
        ("Last report", format_timestamp(answer.last_report_time)),
    ]
    if answer.stalled_since:
        lines.append(("Stalled since", format_timestamp(answer.stalled_since)))
        if answer.why_stalled:
            lines.append(("Because", answer.why_stalled))
    if answer.stragglers:
        lines.append(("Stragglers", ", ".join(answer.stragglers)))
    lines += [(name, f"{value:.6g}") for name, value in sorted(answer.metrics.items())]
    return key_value_table(lines)


def render_plans(answer: job_pb2.PlanList) -> RenderableType:
    """Return a row per plan."""
    rows = plain_table("CREATED", "NAME", "SOURCE", "PHASE", "COMPLETED", "REASON", "MESSAGE")
    for plan in answer.plans:
        add_row(
            rows,
            format_timestamp(plan.created),
            plan.name,
            plan.source,
            plan.phase,
            format_timestamp(plan.completed),
            plain_text(plan.reason, no_wrap=False),
            plain_text(plan.message, no_wrap=False),
        )
    return rows


TOPIC_QUERIES = {
    Topic.MEMBERS: TopicQuery("Members", render_members),
    Topic.PROGRESS: TopicQuery("Progress", render_progress),
    Topic.HISTORY: TopicQuery("History", render_history, incremental=True),
    Topic.PLANS: TopicQuery("Plans", render_plans),
    Topic.AUTOSCALING: TopicQuery("Autoscaling", render_autoscaling),
    Topic.REPORT: TopicQuery("Report", render_report),
}
