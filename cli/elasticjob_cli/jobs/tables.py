"""Renders jobs, plans and events as tables. Pure: callers pass the present time."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, Progress
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_client.jobs import on_one_line
from elasticjob_client.related import Event
from rich.table import Table

from elasticjob_cli.query.formatting import UNKNOWN, add_row, plain_table


def format_age(time: str, now: float) -> str:
    """Return the age of a time as kubectl prints it: 12s, 5m, 3h, 2d."""
    if not time:
        return UNKNOWN
    seconds = max(round(now - parse_time(time)), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def jobs_table(
    jobs: Iterable[ElasticJob], now: float, *, all_namespaces: bool, wide: bool
) -> Table:
    """Return a line per job."""
    titles = ["NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE"]
    if all_namespaces:
        titles.insert(0, "NAMESPACE")
    if wide:
        titles += ["PLAN", "MESSAGE"]
    table = plain_table(*titles)
    for job in jobs:
        status = job.status
        progress = status.progress or Progress()
        row = [
            job.metadata.name,
            status.phase or "Pending",
            status.workers or UNKNOWN,
            progress.steps or UNKNOWN,
            progress.rate or UNKNOWN,
            progress.eta or UNKNOWN,
            str(status.restarts),
            format_age(job.metadata.creation_timestamp, now),
        ]
        if all_namespaces:
            row.insert(0, job.metadata.namespace)
        if wide:
            row += [status.current_plan or UNKNOWN, on_one_line(status.message)]
        add_row(table, *row)
    if wide:
        table.columns[-1].no_wrap = False
    return table


def plans_table(plans: Iterable[ScalePlan], now: float, *, wide: bool) -> Table:
    """Return a line per plan: its source, change and state."""
    titles = ["NAME", "SOURCE", "CHANGE", "PHASE", "AGE", "MESSAGE"]
    if wide:
        titles.append("REASON")
    table = plain_table(*titles)
    for plan in plans:
        status = plan.status
        message = status.message
        if not message and status.waiting_for:
            message = f"waits for {status.waiting_for}"
        row = [
            plan.metadata.name,
            plan.spec.source,
            status.change or UNKNOWN,
            status.phase or "Pending",
            format_age(plan.metadata.creation_timestamp, now),
            message,
        ]
        if wide:
            row.append(plan.spec.reason)
        add_row(table, *row)
    for column in (*table.columns[2:3], *table.columns[5:]):
        column.no_wrap = False
    return table


def request_as_plan(found: Json) -> Json:
    """Return a ScaleIn or ScaleOut without a plan as the plan that it asks for."""
    kind = found.get("kind")
    if kind not in ("ScaleIn", "ScaleOut"):
        return found
    spec = found["spec"]
    count = spec.get("count") or len(spec.get("podNames") or ())
    change = f"{spec.get('role', names.ROLE_WORKER)} {'-' if kind == 'ScaleIn' else '+'}{count}"
    status = found.get("status") or {}
    phase = {"ScaleFailed": "Failed", "ScaleSucceeded": "Succeeded"}.get(status.get("phase", ""))
    shown = {"change": change, "phase": phase, "message": status.get("message", "")}
    plan = {"jobName": spec["jobName"], "source": kind}
    return {"metadata": found["metadata"], "spec": plan, "status": shown}


def events_table(events: Iterable[Event], now: float) -> Table:
    """Return a line per event, in the given order."""
    table = plain_table("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
    for event in events:
        style = "yellow" if event.type == "Warning" else ""
        about = f"{event.regarding.kind.lower()}/{event.regarding.name}"
        note = event.note
        if event.deprecated_count > 1:
            note += f" (x{event.deprecated_count})"
        row = [format_age(event.time, now), event.type, event.reason, about, note]
        add_row(table, *row, style=style)
    table.columns[4].no_wrap = False
    return table
