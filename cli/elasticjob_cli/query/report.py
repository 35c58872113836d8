"""Shows what a training came to, and its course: as text for people, as CSV for programs. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from elasticjob_api.v1 import job_pb2
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob_cli.query.formatting import (
    UNKNOWN,
    format_duration,
    format_timestamp,
    key_value_table,
    plain_table,
)

_SPENT = (
    ("training", "training"),
    ("starting", "starting and changing worlds"),
    ("waiting", "waiting for members"),
    ("stalled", "stalled"),
    ("without_master", "without a master"),
    ("suspended", "suspended"),
)
"""Fields of the time that was spent, and how people call them."""
_CSV_COLUMNS = ("time", "round", "worldSize", "step", "samplesPerSecond")


def render_report(report: job_pb2.Report) -> RenderableType:
    """Return a line per value, and a row per pod that has failed."""
    said = report.outcome
    steps = f"{report.step}/{report.total_steps}" if report.total_steps else str(report.step)
    rate = f"{report.mean_samples_per_second:.5g} a second of training"
    lines = [
        ("Result", ": ".join(filter(None, (said.phase, said.message))) or UNKNOWN),
        ("Began", format_timestamp(report.began)),
        ("Ended", format_timestamp(said.completed)),
        ("Steps", steps),
        ("Samples", f"{report.samples:.6g}, {rate}" if report.samples else UNKNOWN),
        *summary(report),
        ("Worlds", str(report.worlds)),
        ("Masters", str(report.masters)),
        ("Restarts", f"{said.restarts}, and {said.uncounted_restarts} that are nobody's fault"),
    ]
    if said.retries:
        lines.append(("Retries", str(said.retries)))
    lines += [(name, f"{value:.6g}") for name, value in sorted(report.metrics.items())]
    parts: list[RenderableType] = [key_value_table(lines)]
    if said.failures:
        parts += [
            Text(""),
            Text("Failures, the newest first", style="bold"),
            _failures(said.failures),
        ]
    return Group(*parts)


def summary(report: job_pb2.Report) -> list[tuple[str, str]]:
    """Return what the training cost: goodput, what the time was spent on, and resources."""
    spent = [(text, getattr(report.time, field)) for field, text in _SPENT]
    counted = sum(seconds for _, seconds in spent) - report.time.suspended
    goodput = f"{100 * report.goodput:.0f} % of {format_duration(counted)} was training"
    hours = f"{report.member_hours:.3g} of members, {report.cpu_hours:.3g} of CPUs used, {report.gpu_hours:.3g} of GPUs"
    return [
        ("Goodput", goodput if report.goodput >= 0 else f"{UNKNOWN}: no step was reported"),
        (
            "Time",
            ", ".join(
                f"{format_duration(seconds)} {text}" for text, seconds in spent if seconds >= 1
            )
            or UNKNOWN,
        ),
        ("Hours", hours),
    ]


def render_history(answer: job_pb2.History) -> RenderableType:
    """Return a line per sample and event, in the order of their times."""
    lines = [(event.time, event.reason, event.message) for event in answer.events]
    for each in answer.samples:
        parts = (
            f"step {each.step}",
            f"world of {each.world_size}",
            f"{each.samples_per_second:.5g} samples/s",
            *(f"{name} {value:.5g}" for name, value in sorted(each.metrics.items())),
        )
        lines.append((each.time, "", f"round {each.round}, {', '.join(parts)}"))
    return Text(
        "\n".join(
            f"{format_timestamp(time)}  {reason:18}  {text}" for time, reason, text in sorted(lines)
        )
    )


def history_csv(answer: job_pb2.History) -> str:
    """Return a row per sample, with a column per metric, and a row per event, in the order of their times."""
    metrics = sorted({name for each in answer.samples for name in each.metrics})
    rows: list[tuple[float, Mapping[str, object]]] = []
    for each in answer.samples:
        values = (
            format_timestamp(each.time),
            each.round,
            each.world_size,
            each.step,
            each.samples_per_second,
        )
        measured = {_column(name): value for name, value in each.metrics.items()}
        rows.append((each.time, measured | dict(zip(_CSV_COLUMNS, values, strict=True))))
    for event in answer.events:
        row = {
            "time": format_timestamp(event.time),
            "event": event.reason,
            "message": event.message,
        }
        rows.append((event.time, row))
    text = io.StringIO()
    columns = (*_CSV_COLUMNS, *map(_column, metrics), "event", "message")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for _, row in sorted(rows, key=lambda pair: pair[0]))
    return text.getvalue()


def _column(metric: str) -> str:
    """Return the column of a metric, which may have the name of another column."""
    return f"metric.{metric}" if metric in (*_CSV_COLUMNS, "event", "message") else metric


def _failures(failures: Iterable[job_pb2.PodFailure]) -> Table:
    table = plain_table("TIME", "POD", "REASON", "DONE", "LAST WORDS")
    for each in failures:
        table.add_row(
            *map(
                Text,
                (format_timestamp(each.time), each.pod, each.reason, each.action, each.message),
            )
        )
    table.columns[-1].no_wrap = False
    return table
