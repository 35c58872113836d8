"""The topics of `elasticjob query` besides the job's status, such as members, progress and history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticjob_api.v1 import agent_pb2, job_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import RenderableType
from rich.text import Text

from elasticjob_cli.query.autoscaling import render_autoscaling
from elasticjob_cli.query.formatting import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_enum,
    format_timestamp,
    key_value_table,
    plain_table,
)
from elasticjob_cli.query.report import render_history, render_report


class Topic(StrEnum):
    """What to show of a job."""

    STATUS = "status"
    MEMBERS = "members"
    PROGRESS = "progress"
    HISTORY = "history"
    PLANS = "plans"
    AUTOSCALING = "autoscaling"
    REPORT = "report"


@dataclass(frozen=True)
class TopicQuery:
    """How a topic is requested from the master and shown.

    Attributes:
        name: of the RPCs: `Get<name>` and `Watch<name>`.
        render: returns an answer as people read it.
        incremental: each answer of a watch adds to the ones before, in place of replacing them.
    """

    name: str
    render: Callable[[Any], RenderableType]
    incremental: bool = False


def as_json(answer: Message) -> str:
    """Return one line in protobuf's own JSON: 64-bit numbers are text, zeros are shown."""
    return json.dumps(MessageToDict(answer, always_print_fields_with_no_presence=True))


def render_members(answer: job_pb2.MemberList) -> RenderableType:
    """Return a row per member.

    State, step time, resource usage, and whether it is a straggler or its node unfit.
    """
    rows = plain_table(
        "ROLE",
        "INDEX",
        "POD",
        "NODE",
        "STATE",
        "STEP",
        "STEP TIME",
        "CPU",
        "MEMORY",
        "GPU",
        "REMARK",
    )
    for each in sorted(
        answer.members, key=lambda member: (member.role, member.index, member.incarnation)
    ):
        usage = each.usage
        rows.add_row(
            each.role,
            str(each.index),
            each.pod_name,
            each.node_name or UNKNOWN,
            format_enum(agent_pb2.MemberState.Name(each.state), "MEMBER_STATE_"),
            str(each.step),
            f"{each.step_seconds:.3g} s" if each.step_seconds else UNKNOWN,
            f"{usage.cpu_cores:.2f}",
            format_bytes(usage.memory_bytes),
            f"{usage.gpu_percent} %" if usage.gpu_memory_bytes else UNKNOWN,
            "; ".join(filter(None, ("straggler" if each.straggler else "", each.check_problem))),
        )
    return rows


def render_progress(answer: job_pb2.Progress) -> RenderableType:
    """Return a line per value."""
    lines = [
        ("Step", f"{answer.step}/{answer.total_steps}" if answer.total_steps else str(answer.step)),
        (
            "Rate",
            f"{answer.samples_per_second:.5g} samples/s" if answer.samples_per_second else UNKNOWN,
        ),
        (
            "Steps",
            f"{answer.steps_per_second:.4g} a second" if answer.steps_per_second else UNKNOWN,
        ),
        ("To go", format_duration(answer.eta_seconds) if answer.last_report_time else UNKNOWN),
        ("Last report", format_timestamp(answer.last_report_time)),
    ]
    if answer.stalled_since:
        lines.append(("Stalled since", format_timestamp(answer.stalled_since)))
    if answer.stragglers:
        lines.append(("Stragglers", ", ".join(answer.stragglers)))
    lines += [(name, f"{value:.6g}") for name, value in sorted(answer.metrics.items())]
    return key_value_table(lines)


def render_plans(answer: job_pb2.PlanList) -> RenderableType:
    """Return a row per plan."""
    rows = plain_table("CREATED", "NAME", "SOURCE", "PHASE", "COMPLETED", "REASON", "MESSAGE")
    for plan in answer.plans:
        texts = (Text(plan.reason, no_wrap=False), Text(plan.message, no_wrap=False))
        rows.add_row(
            format_timestamp(plan.created),
            plan.name,
            plan.source,
            plan.phase,
            format_timestamp(plan.completed),
            *texts,
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
