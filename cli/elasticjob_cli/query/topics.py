"""Renders the answers of a job's master by topic: tables for people, JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticjob_api.v1 import job_pb2, shards_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_duration,
    format_metrics,
    format_rate,
    format_steps,
    format_timestamp,
    key_value_table,
    plain_text,
    table_of,
)
from elasticjob_cli.common.tables import Page, Shown
from elasticjob_cli.query.autoscaling import is_of_interest, render_autoscaling
from elasticjob_cli.query.members import in_order, members_table
from elasticjob_cli.query.report import render_history, render_report


class Topic(StrEnum):
    """The part of a job that a query shows."""

    STATUS = "status"
    MEMBERS = "members"
    PROGRESS = "progress"
    HISTORY = "history"
    PLANS = "plans"
    AUTOSCALING = "autoscaling"
    REPORT = "report"


def message_fields(answer: Message) -> dict[str, Any]:
    """Return the fields in protobuf's own JSON: 64-bit numbers are text, zeros are shown."""
    return MessageToDict(answer, always_print_fields_with_no_presence=True)


def status_fields(answers: job_pb2.StoredAnswers) -> dict[str, Any]:
    """Return the fields of the status, `members`, `autoscaling` and `jobPhase`."""
    return message_fields(answers.status) | {
        "members": [
            message_fields(member) | {"rank": answers.ranks.get(member.pod_uid)}
            for member in in_order(answers.members.members)
        ],
        "autoscaling": message_fields(answers.autoscaling),
        "jobPhase": answers.report.outcome.phase,
    }


def render_status(answers: job_pb2.StoredAnswers) -> Shown:
    """Return a summary, a row per member, a row per data set, and the auto-scaler's knowledge."""
    status = answers.status
    parts: list[Shown] = [_summary(answers), plain_text()]
    if answers.members.members:
        titles = ("ROLE", "INDEX", "RANK", "POD", "STATE", "ADDRESS", "STEP", "CPU", "MEMORY")
        parts.append(members_table(in_order(answers.members.members), titles, answers.ranks))
    else:
        see = f"`elasticjob describe {status.job_name}` shows its pods"
        parts.append(plain_text(f"no members now; {see}"))
    if status.datasets:
        columns: dict[str, Callable[[shards_pb2.Ledger], str]] = {
            "DATASET": lambda ledger: ledger.dataset,
            "SHARDS": lambda ledger: str(ledger.total),
            "DONE": lambda ledger: str(ledger.done),
            "LEASED": lambda ledger: str(ledger.leased),
            "WAITING": lambda ledger: str(ledger.waiting),
            "RETURNED": lambda ledger: str(ledger.returned),
            "FAILED": lambda ledger: str(ledger.failed),
        }
        parts += [plain_text(), table_of(status.datasets, columns)]
    if is_of_interest(answers.autoscaling):
        parts += [plain_text(), render_autoscaling(answers.autoscaling)]
    return Page(*parts)


def format_phase(phase: job_pb2.JobPhase.ValueType) -> str:
    """Return a phase of the training, such as `Training`."""
    return job_pb2.JobPhase.Name(phase).removeprefix("JOB_PHASE_").capitalize()


def _summary(answers: job_pb2.StoredAnswers) -> Shown:
    status = answers.status
    progress = status.progress
    steps = format_steps(progress.step, progress.total_steps)
    if progress.total_steps:
        steps += f" ({100 * progress.step // progress.total_steps} %)"
    rows = [
        ("Job", f"{status.namespace}/{status.job_name}"),
        ("Phase", answers.report.outcome.phase or format_phase(status.phase)),
        ("World", f"round {status.round}, size {status.world_size}"),
        ("Step", steps),
        ("Rate", format_rate(progress.samples_per_second)),
        ("To go", _remaining_time(progress)),
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


def _remaining_time(progress: job_pb2.Progress) -> str:
    return format_duration(progress.eta_seconds) if progress.last_report_time else UNKNOWN


def render_members(answer: job_pb2.MemberList) -> Shown:
    """Return a row per member: state, step time, resource usage, straggler and unfit node."""
    titles = ("ROLE", "INDEX", "POD", "NODE", "STATE", "STEP", "STEP TIME", "CPU", "MEMORY", "GPU")
    return members_table(in_order(answer.members), (*titles, "REMARK"))


def render_progress(answer: job_pb2.Progress) -> Shown:
    """Return a line per value."""
    steps_rate = UNKNOWN
    if answer.steps_per_second:
        steps_rate = f"{answer.steps_per_second:.4g} a second"
    lines = [
        ("Step", format_steps(answer.step, answer.total_steps)),
        ("Rate", format_rate(answer.samples_per_second)),
        ("Steps", steps_rate),
        ("To go", _remaining_time(answer)),
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


def render_plans(answer: job_pb2.PlanList) -> Shown:
    """Return a row per plan."""
    columns: dict[str, Callable[[job_pb2.Plan], str]] = {
        "CREATED": lambda plan: format_timestamp(plan.created),
        "NAME": lambda plan: plan.name,
        "SOURCE": lambda plan: plan.source,
        "PHASE": lambda plan: plan.phase,
        "COMPLETED": lambda plan: format_timestamp(plan.completed),
        "REASON": lambda plan: plan.reason,
        "MESSAGE": lambda plan: plan.message,
    }
    return table_of(answer.plans, columns, wrapped=("REASON", "MESSAGE"))


@dataclass(frozen=True)
class TopicQuery:
    """The query and the rendering of a topic.

    Attributes:
        name: the end of the RPCs' names: `Get<name>` and `Watch<name>`.
        render: returns an answer for people.
        fields: returns an answer for programs.
        incremental: each answer of a watch adds to the earlier ones instead of replacing them.
    """

    name: str
    render: Callable[[Any], Shown]
    fields: Callable[[Any], dict[str, Any]] = message_fields
    incremental: bool = False

    def as_json(self, answer: Message) -> str:
        """Return an answer for programs, on one line."""
        return json.dumps(self.fields(answer))


TOPIC_QUERIES = {
    Topic.STATUS: TopicQuery("Status", render_status, status_fields),
    Topic.MEMBERS: TopicQuery("Members", render_members),
    Topic.PROGRESS: TopicQuery("Progress", render_progress),
    Topic.HISTORY: TopicQuery("History", render_history, incremental=True),
    Topic.PLANS: TopicQuery("Plans", render_plans),
    Topic.AUTOSCALING: TopicQuery("Autoscaling", render_autoscaling),
    Topic.REPORT: TopicQuery("Report", render_report),
}
"""The answer to the status is a snapshot with members and more; the others are single answers."""
