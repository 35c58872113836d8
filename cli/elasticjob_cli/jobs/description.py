"""A page about one job.

How it is, its members, the plan in force, what has failed and what has happened. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from elasticjob_api.elasticjob import ElasticJob, Failure
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.v1.job_pb2 import Report
from elasticjob_client.members import Ranks
from elasticjob_client.related import Event
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob_cli.jobs.tables import events_table, format_age
from elasticjob_cli.query.formatting import UNKNOWN, format_duration, key_value_table, plain_table
from elasticjob_cli.query.report import summary

_EVENTS = 20
_UNSCHEDULABLE = "PodScheduled"


def describe(
    job: ElasticJob,
    pods: Sequence[Json],
    plans: Iterable[ScalePlan],
    events: Sequence[Event],
    now: float,
    report: Report | None = None,
    ranks: Ranks = MappingProxyType({}),
) -> RenderableType:
    """Return the page; of the events the last ones.

    `report`: what the job's master has last stored.
    """
    parts: list[RenderableType] = [_summary(job, now, report)]
    for title, table in (
        ("Roles", _roles(job)),
        ("Pods", _pods(pods, ranks, now)),
        ("Plans under way", _plans(plans)),
        ("Failures, the newest first", _failures(job.status.failures, now)),
        ("Conditions", _conditions(job, now)),
        ("Events", events_table(events[-_EVENTS:], now)),
    ):
        if table.row_count:
            parts += [Text(""), Text(title, style="bold"), table]
    return Group(*parts)


def why_not_running(pod: Json) -> str:
    """Return why a pod does not run, in the cluster's words; empty if it does."""
    status = pod.get("status") or {}
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            return _joined(waiting.get("reason"), waiting.get("message"))
        if (ended := state.get("terminated")) and ended.get("exitCode"):
            return _joined(
                f"{ended.get('reason') or 'Error'}, exit code {ended['exitCode']}",
                ended.get("message"),
            )
    for condition in status.get("conditions") or ():
        if condition.get("type") == _UNSCHEDULABLE and condition.get("status") == "False":
            return _joined(condition.get("reason"), condition.get("message"))
    return _joined(status.get("reason"), status.get("message"))


def _joined(reason: str | None, message: str | None) -> str:
    """Return both on one line, since what a program has said may have many."""
    return " ".join(": ".join(filter(None, (reason, message))).split())


def _summary(job: ElasticJob, now: float, report: Report | None) -> Table:
    status = job.status
    progress = job.status.progress
    rows = [
        ("Job", f"{job.metadata.namespace}/{job.metadata.name}"),
        ("Framework", job.spec.framework),
        ("Phase", _joined(status.phase or "Pending", status.message)),
        ("Age", format_age(job.metadata.creation_timestamp, now)),
    ]
    if progress is not None:
        left = format_duration(progress.eta_seconds) if progress.eta_seconds is not None else ""
        parts = (progress.steps, progress.rate, f"{left} to go" if left else "")
        rows.append(("Progress", ", ".join(filter(None, parts)) or UNKNOWN))
        if progress.metrics:
            rows.append(
                (
                    "Metrics",
                    ", ".join(f"{name} {value:g}" for name, value in progress.metrics.items()),
                )
            )
        if progress.stragglers:
            rows.append(("Stragglers", ", ".join(progress.stragglers)))
    rows.append(
        ("Restarts", f"{status.restarts}, and {status.uncounted_restarts} that are nobody's fault")
    )
    if report is not None:
        rows += summary(report)
    return key_value_table(rows)


def _roles(job: ElasticJob) -> Table:
    table = plain_table("ROLE", "DESIRED", "READY", "SUCCEEDED", "FAILED", "BOUNDS")
    for role, spec in sorted(job.spec.replica_specs.items()):
        status = job.status.replica_statuses.get(role)
        desired = spec.size if status is None else status.desired
        counts = (0, 0, 0) if status is None else (status.ready, status.succeeded, status.failed)
        bounds = f"{spec.min_replicas} to {spec.max_replicas or 'any'}"
        table.add_row(*map(Text, (role, str(desired), *map(str, counts), bounds)))
    return table


def _pods(pods: Iterable[Json], ranks: Ranks, now: float) -> Table:
    table = plain_table("POD", "RANK", "PHASE", "NODE", "AGE", "WHY")
    for pod in pods:
        metadata = pod["metadata"]
        phase = (
            "Terminating"
            if metadata.get("deletionTimestamp")
            else (pod.get("status") or {}).get("phase", UNKNOWN)
        )
        node = pod["spec"].get("nodeName") or UNKNOWN
        age = format_age(metadata["creationTimestamp"], now)
        rank = str(ranks.get(metadata.get("uid", ""), UNKNOWN))
        table.add_row(*map(Text, (metadata["name"], rank, phase, node, age, why_not_running(pod))))
    table.columns[-1].no_wrap = False
    return table


def _plans(plans: Iterable[ScalePlan]) -> Table:
    table = plain_table("PLAN", "SOURCE", "PHASE", "WAITS FOR", "REASON")
    for plan in plans:
        if plan.status.phase not in FINISHED:
            status = plan.status
            row = (
                plan.metadata.name,
                plan.spec.source,
                status.phase or "Pending",
                status.waiting_for,
                plan.spec.reason,
            )
            table.add_row(*map(Text, row))
    for column in table.columns[-2:]:
        column.no_wrap = False
    return table


def _failures(failures: Iterable[Failure], now: float) -> Table:
    table = plain_table("AGE", "POD", "HOW", "DONE", "LAST WORDS")
    for failure in failures:
        code = f"exit code {failure.exit_code}" if failure.exit_code is not None else ""
        how = ", ".join(filter(None, (failure.reason, code))) or UNKNOWN
        age = format_age(failure.finished_at or "", now)
        table.add_row(*map(Text, (age, failure.pod, how, failure.action, failure.message)))
    table.columns[-1].no_wrap = False
    return table


def _conditions(job: ElasticJob, now: float) -> Table:
    table = plain_table("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")
    for condition in job.status.conditions:
        age = format_age(condition.last_transition_time or "", now)
        table.add_row(
            *map(Text, (condition.type, condition.status, condition.reason, age, condition.message))
        )
    table.columns[-1].no_wrap = False
    return table
