"""Jobs, plans and events as tables for people. Pure: the present time is given."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_client.related import Event
from rich.table import Table
from rich.text import Text

from elasticjob_cli.query.formatting import UNKNOWN, plain_table


def format_age(time: str, now: float) -> str:
    """Return how long ago a time was, as kubectl prints ages: 12s, 5m, 3h, 2d."""
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
    table = plain_table(
        *(["NAMESPACE"] if all_namespaces else []),
        *("NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE"),
        *(["PLAN", "MESSAGE"] if wide else []),
    )
    for job in jobs:
        status = job.status
        progress = status.progress
        row = [
            *([job.metadata.namespace] if all_namespaces else []),
            job.metadata.name,
            status.phase or "Pending",
            status.workers or UNKNOWN,
            (progress.steps if progress else "") or UNKNOWN,
            (progress.rate if progress else "") or UNKNOWN,
            (progress.eta if progress else "") or UNKNOWN,
            str(status.restarts),
            format_age(job.metadata.creation_timestamp, now),
            *([status.current_plan or UNKNOWN, status.message] if wide else []),
        ]
        table.add_row(*map(Text, row))
    if wide:
        table.columns[-1].no_wrap = False  # the message gives way, not the names
    return table


def plans_table(plans: Iterable[ScalePlan], now: float, *, wide: bool) -> Table:
    """Return a line per plan: what it has changed, by whom, and how far it is."""
    table = plain_table(
        "NAME", "SOURCE", "CHANGE", "PHASE", "AGE", "MESSAGE", *(["REASON"] if wide else [])
    )
    for plan in plans:
        status = plan.status
        said = status.message or (f"waits for {status.waiting_for}" if status.waiting_for else "")
        row = [
            plan.metadata.name,
            plan.spec.source,
            status.change or UNKNOWN,
            status.phase or "Pending",
            format_age(plan.metadata.creation_timestamp, now),
            said,
            *([plan.spec.reason] if wide else []),
        ]
        table.add_row(*map(Text, row))
    for column in (*table.columns[2:3], *table.columns[5:]):
        column.no_wrap = False
    return table


def events_table(events: Iterable[Event], now: float) -> Table:
    """Return a line per event, in the order in which they happened."""
    table = plain_table("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
    for event in events:
        style = "yellow" if event.type == "Warning" else ""
        about = f"{event.regarding.kind.lower()}/{event.regarding.name}"
        note = (
            f"{event.note} (x{event.deprecated_count})"
            if event.deprecated_count > 1
            else event.note
        )
        row = [format_age(event.time, now), event.type, event.reason, about, note]
        table.add_row(*(Text(cell, style=style) for cell in row))
    table.columns[4].no_wrap = False
    return table
