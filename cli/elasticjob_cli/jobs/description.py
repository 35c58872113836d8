"""Renders the page of `elasticjob describe` about one job. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType

from elasticjob_api.elasticjob import ElasticJob, Failure, Progress
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_client.jobs import read
from elasticjob_client.members import JobPod, Ranks, with_reason
from elasticjob_client.related import Event
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Table

from elasticjob_cli.jobs.tables import events_table, format_age
from elasticjob_cli.query.formatting import (
    UNKNOWN,
    add_row,
    format_duration,
    key_value_table,
    plain_table,
    plain_text,
)
from elasticjob_cli.query.report import restarts, summary

_EVENTS = 20
_TRACEBACK = re.compile(r'Traceback \(most recent call last\):|File "')
"""The beginning of a traceback, which may have been cut."""


def describe(
    job: ElasticJob,
    pods: Sequence[Json],
    plans: Iterable[ScalePlan],
    events: Sequence[Event],
    now: float,
    stored: StoredAnswers | None = None,
    ranks: Ranks = MappingProxyType({}),
) -> RenderableType:
    """Return the page, in which each traceback is shown once.

    `stored`: the answers that the job's master has stored.
    """
    shown = _tracebacks_shown_once(job.status.failures)
    parts: list[RenderableType] = [_summary(job, now, stored, shown)]
    for title, table in (
        ("Roles", _roles(job)),
        ("Pods", _pods(pods, ranks, now, shown)),
        ("Plans under way", _plans(plans)),
        ("Failures, the newest first", _failures(job.status.failures, now)),
        ("Conditions", _conditions(job, now, shown)),
        (
            "Events",
            events_table([replace(each, note=shown(each.note)) for each in events[-_EVENTS:]], now),
        ),
    ):
        if table.row_count:
            parts += [plain_text(""), plain_text(title, style="bold"), table]
    return Group(*parts)


def _tracebacks_shown_once(failures: Iterable[Failure]) -> Callable[[str], str]:
    """Return a function that puts a text on one line.

    Of a traceback that was in an earlier text, only the last line is left, which is the error.
    """
    errors = [_on_one_line(each.message) for each in failures if each.message]
    seen: set[str] = set()

    def shown(text: str) -> str:
        line = _on_one_line(text)
        trace = _TRACEBACK.search(line)
        error = next((each for each in errors if trace and each in line[trace.start() :]), None)
        if trace and error in seen:
            return line[: trace.start()] + line[line.rindex(error) :]
        if error:
            seen.add(error)
        return line

    return shown


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _summary(
    job: ElasticJob, now: float, stored: StoredAnswers | None, shown: Callable[[str], str]
) -> Table:
    status = job.status
    rows = [
        ("Job", f"{job.metadata.namespace}/{job.metadata.name}"),
        ("Framework", job.spec.framework),
        ("Phase", shown(with_reason(status.phase or "Pending", status.message))),
        ("Age", format_age(job.metadata.creation_timestamp, now)),
    ]
    if status.progress is not None:
        rows += _progress(status.progress, now)
    rows.append(("Restarts", restarts(status.restarts, status.uncounted_restarts)))
    if stored is not None:
        rows.append(("Totals", f"as of {format_duration(max(now - stored.time, 0))} ago"))
        rows += summary(stored.report)
    return key_value_table(rows)


def _progress(progress: Progress, now: float) -> Iterable[tuple[str, str]]:
    parts = [progress.steps, progress.rate]
    if progress.eta_seconds is not None:
        parts.append(f"{format_duration(progress.eta_seconds)} to go")
    if progress.last_report_time:
        parts.append(f"as of {format_age(progress.last_report_time, now)} ago")
    yield "Progress", ", ".join(filter(None, parts)) or UNKNOWN
    if progress.metrics:
        yield "Metrics", ", ".join(f"{name} {value:g}" for name, value in progress.metrics.items())
    if progress.stragglers:
        yield "Stragglers", ", ".join(progress.stragglers)


def _roles(job: ElasticJob) -> Table:
    table = plain_table("ROLE", "DESIRED", "READY", "SUCCEEDED", "FAILED", "BOUNDS")
    for role, spec in sorted(job.spec.replica_specs.items()):
        counts = [spec.size, 0, 0, 0]
        if status := job.status.replica_statuses.get(role):
            counts = [status.desired, status.ready, status.succeeded, status.failed]
        bounds = f"{spec.min_replicas} to {spec.max_replicas or 'any'}"
        add_row(table, role, *map(str, counts), bounds)
    return table


def _pods(pods: Iterable[Json], ranks: Ranks, now: float, shown: Callable[[str], str]) -> Table:
    table = plain_table("POD", "RANK", "PHASE", "NODE", "AGE", "WHY")
    for pod in pods:
        metadata = pod["metadata"]
        phase = (pod.get("status") or {}).get("phase", UNKNOWN)
        if metadata.get("deletionTimestamp"):
            phase = "Terminating"
        row = (
            metadata["name"],
            str(ranks.get(metadata.get("uid", ""), UNKNOWN)),
            phase,
            pod["spec"].get("nodeName") or UNKNOWN,
            format_age(metadata["creationTimestamp"], now),
            shown(read(pod, JobPod).why_not_running),
        )
        add_row(table, *row)
    table.columns[-1].no_wrap = False
    return table


def _plans(plans: Iterable[ScalePlan]) -> Table:
    table = plain_table("PLAN", "SOURCE", "PHASE", "WAITS FOR", "REASON")
    for plan in plans:
        status = plan.status
        if status.phase in FINISHED:
            continue
        row = (
            plan.metadata.name,
            plan.spec.source,
            status.phase or "Pending",
            status.waiting_for,
            plan.spec.reason,
        )
        add_row(table, *row)
    for column in table.columns[-2:]:
        column.no_wrap = False
    return table


def _failures(failures: Iterable[Failure], now: float) -> Table:
    table = plain_table("AGE", "POD", "HOW", "RULE", "LAST WORDS")
    for failure in failures:
        how = [failure.reason]
        if failure.exit_code is not None:
            how.append(f"exit code {failure.exit_code}")
        row = (
            format_age(failure.finished_at or "", now),
            failure.pod,
            ", ".join(filter(None, how)) or UNKNOWN,
            failure.action,
            failure.message,
        )
        add_row(table, *row)
    table.columns[-1].no_wrap = False
    return table


def _conditions(job: ElasticJob, now: float, shown: Callable[[str], str]) -> Table:
    table = plain_table("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")
    for condition in job.status.conditions:
        age = format_age(condition.last_transition_time or "", now)
        row = (condition.type, condition.status, condition.reason, age, shown(condition.message))
        add_row(table, *row)
    table.columns[-1].no_wrap = False
    return table
