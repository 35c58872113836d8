"""Renders a training's report and history: as text for people, as CSV for programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elasticjob_api.plain_text import printable
from elasticjob_api.v1 import job_pb2

from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_duration,
    format_steps,
    format_timestamp,
    key_value_table,
    plain_text,
    table_of,
    titled,
)
from elasticjob_cli.common.tables import Page, Shown

_TIMES = (
    ("training", "training"),
    ("starting", "starting and changing worlds"),
    ("waiting", "waiting for members"),
    ("stalled", "stalled"),
    ("without_master", "without a master"),
    ("suspended", "suspended"),
)
"""Fields of the report's `time`, with the texts that are shown."""
_WITHOUT_STEPS = "in worlds whose program reports no steps (elasticjob.report_step does)"
"""In place of starting: a program without the library may train all the time."""
_CSV_COLUMNS = ("time", "round", "worldSize", "step", "samplesPerSecond")
_CSV_EVENT_COLUMNS = ("event", "message")


def render_report(report: job_pb2.Report) -> Shown:
    """Return a line per value, and a row per failed pod."""
    outcome = report.outcome
    samples = UNKNOWN
    if report.samples:
        samples = f"{report.samples:.6g}, {report.mean_samples_per_second:.5g} a second of training"
    lines = [
        ("Result", ": ".join(filter(None, (outcome.phase, outcome.message))) or UNKNOWN),
        ("Began", format_timestamp(report.began)),
        ("Ended", format_timestamp(outcome.completed)),
        ("Steps", format_steps(report.step, report.total_steps)),
        ("Samples", samples),
        *summary(report),
        ("Worlds", str(report.worlds)),
        ("Masters", str(report.masters)),
        ("Restarts", restarts(outcome.restarts, outcome.uncounted_restarts)),
    ]
    if outcome.retries:
        lines.append(("Retries", str(outcome.retries)))
    lines += [(name, f"{value:.6g}") for name, value in sorted(report.metrics.items())]
    columns: dict[str, Callable[[job_pb2.PodFailure], str]] = {
        "TIME": lambda failure: format_timestamp(failure.time),
        "POD": lambda failure: failure.pod,
        "REASON": lambda failure: failure.reason,
        "RULE": lambda failure: failure.action,
        "LAST WORDS": lambda failure: failure.message,
    }
    failures = table_of(outcome.failures, columns, wrapped=("LAST WORDS",))
    return Page(key_value_table(lines), *titled("Failures, the newest first", failures))


def restarts(counted: int, uncounted: int) -> str:
    """Return the numbers of restarts that count against the limits, and of the others."""
    return f"{counted}, and {uncounted} that do not count"


def summary(report: job_pb2.Report) -> list[tuple[str, str]]:
    """Return the lines about the costs of the training: goodput, time, and resources."""
    texts = dict(_TIMES)
    if report.goodput < 0:
        texts["starting"] = _WITHOUT_STEPS
    times = [(text, getattr(report.time, field)) for field, text in texts.items()]
    goodput = f"{UNKNOWN}: no step was reported"
    if report.goodput >= 0:
        counted = sum(seconds for _, seconds in times) - report.time.suspended
        goodput = f"{100 * report.goodput:.0f} % of {format_duration(counted)} was training"
    shown = [f"{format_duration(seconds)} {text}" for text, seconds in times if seconds >= 1]
    hours = (
        f"{report.member_hours:.3g} of members",
        f"{report.cpu_hours:.3g} of CPUs used",
        f"{report.gpu_hours:.3g} of GPUs",
    )
    return [
        ("Goodput", goodput),
        ("Time", ", ".join(shown) or UNKNOWN),
        ("Hours", ", ".join(hours)),
        *([("Standby", report.standby)] if report.standby else []),
        *([("Cost", format_cost(report.cost))] if report.HasField("cost") else []),
        *([("Advice", report.advice)] if report.advice else []),
    ]


def format_cost(cost: job_pb2.Cost) -> str:
    """Return a cost with its currency; of one below 1 three digits."""
    amount = f"{cost.amount:,.2f}" if cost.amount >= 1 else f"{cost.amount:.3g}"
    return f"{amount} {cost.currency}".rstrip()


def render_history(answer: job_pb2.History) -> Shown:
    """Return a line per sample and event, in the order of their times."""
    lines = [(event.time, event.reason, event.message) for event in answer.events]
    for each in answer.samples:
        parts = (
            f"round {each.round}",
            f"step {each.step}",
            f"world of {each.world_size}",
            f"{each.samples_per_second:.5g} samples/s",
            *(f"{name} {value:.5g}" for name, value in sorted(each.metrics.items())),
        )
        lines.append((each.time, "", ", ".join(parts)))
    return plain_text(
        "\n".join(
            printable(f"{format_timestamp(time)}  {reason:18}  {text}")
            for time, reason, text in sorted(lines)
        ),
        lines=True,
    )


def history_csv(answer: job_pb2.History) -> str:
    """Return a row per sample and event in the order of their times, with a column per metric."""
    import csv  # slow, and `describe` needs none
    import io

    rows: list[tuple[float, Mapping[str, object]]] = []
    for each in answer.samples:
        measured = {_column(name): value for name, value in each.metrics.items()}
        row = {
            "time": format_timestamp(each.time),
            "round": each.round,
            "worldSize": each.world_size,
            "step": each.step,
            "samplesPerSecond": each.samples_per_second,
        }
        rows.append((each.time, measured | row))
    for event in answer.events:
        row = {
            "time": format_timestamp(event.time),
            "event": event.reason,
            "message": event.message,
        }
        rows.append((event.time, row))
    metrics = sorted({name for each in answer.samples for name in each.metrics})
    text = io.StringIO()
    columns = (*_CSV_COLUMNS, *map(_column, metrics), *_CSV_EVENT_COLUMNS)
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for _, row in sorted(rows, key=lambda pair: pair[0]))
    return text.getvalue()


def _column(metric: str) -> str:
    """Return the column of a metric; a metric may have the name of a fixed column."""
    if metric in (*_CSV_COLUMNS, *_CSV_EVENT_COLUMNS):
        return f"metric.{metric}"
    return metric
