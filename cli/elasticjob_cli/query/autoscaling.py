"""Renders the auto-scaler's measurements, its present activity and its pauses. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.v1 import job_pb2
from rich.console import Group, RenderableType
from rich.table import Table

from elasticjob_cli.query.formatting import (
    UNKNOWN,
    add_row,
    format_bytes,
    format_duration,
    format_rate,
    format_timestamp,
    key_value_table,
    plain_table,
    plain_text,
)


def is_of_interest(known: job_pb2.Autoscaling) -> bool:
    """Return whether auto-scaling is on, or sizes have been measured."""
    return known.enabled or any(size.samples_per_second for size in known.sizes)


def render_autoscaling(known: job_pb2.Autoscaling) -> RenderableType:
    """Return lines about the activity, a row per size, and a row per changed role."""
    if not is_of_interest(known):
        return plain_text("Auto-scaling is off, and no size has been measured.")
    parts: list[RenderableType] = [key_value_table(_lines(known))]
    if known.sizes:
        parts += [plain_text(), _sizes(known)]
    changed = [role for role in known.roles if role.remark]
    if changed:
        parts += [plain_text(), _roles(changed)]
    return Group(*parts)


def _lines(known: job_pb2.Autoscaling) -> Iterable[tuple[str, str]]:
    yield "Auto-scaling", _state(known)
    allowed = f"{known.minimum} to {known.maximum} ({known.limit})"
    yield "Sizes", f"{known.role} has {known.size}, may have {allowed}"
    if known.objective:
        yield "Objective", known.objective
    if known.best_to:
        best = str(known.best_to)
        if known.best_from != known.best_to:
            best = f"{known.best_from} to {best}"
        yield "Best size", f"{best}, with a likelihood of at least 90 %"
    yield "Now", _activity(known)
    if known.retry_time:
        problem = f"no more than {known.had_size} members could start"
        yield "Pause", f"{problem}; more are requested from {format_timestamp(known.retry_time)} on"
    if known.resources_retry_time:
        retry = format_timestamp(known.resources_retry_time)
        yield (
            "Pause",
            f"a plan for CPU or memory has failed; the next one may follow from {retry} on",
        )
    if known.rescale_seconds:
        yield "Rescale", f"costs {format_duration(known.rescale_seconds)} of training"
    if known.decided:
        yield "Decided", f"{format_timestamp(known.decided)}: {known.reason}"


def _state(known: job_pb2.Autoscaling) -> str:
    if not known.enabled:
        return "off, measures only"
    if known.settled_size:
        return f"on, settled at {known.settled_size}"
    return "on"


def _activity(known: job_pb2.Autoscaling) -> str:
    if known.waiting_for:
        return f"waits for {known.waiting_for}"
    measuring = f"measuring {known.size} members: {100 * known.window_part:.0f} % of the window"
    if known.decision_seconds < 0:
        return measuring
    return f"{measuring}, the next decision in at most {format_duration(known.decision_seconds)}"


def _sizes(known: job_pb2.Autoscaling) -> Table:
    titles = ["SIZE", "MEASURED", "WINDOWS", "ERROR", "EXPECTED", "BELIEVED TO BE"]
    has_meanings = any(each.means for each in known.sizes)
    if has_meanings:
        titles.append("MEANS")
    rows = plain_table(*titles)
    for each in known.sizes:
        size = str(each.size)
        if each.size == known.size:
            size += " *"
        row = [size, *_measurement(each), *_expectation(each)]
        if has_meanings:
            row.append(each.means or UNKNOWN)
        add_row(rows, *row)
    return rows


def _measurement(size: job_pb2.SizeBelief) -> tuple[str, str, str]:
    if not size.samples_per_second:
        return UNKNOWN, UNKNOWN, UNKNOWN
    error = f"{100 * size.relative_error:.1f} %"
    return format_rate(size.samples_per_second), f"{size.windows:.1f}", error


def _expectation(size: job_pb2.SizeBelief) -> tuple[str, str]:
    if not size.expected:
        return UNKNOWN, UNKNOWN
    return f"{size.expected_from:.4g} to {size.expected_to:.4g}", _belief(size)


def _belief(size: job_pb2.SizeBelief) -> str:
    """Return the likeliest of three judgements of a size."""
    right = max(0.0, 1 - size.too_small - size.too_large)
    likelihood, text = max(
        (right, "about right"), (size.too_small, "too small"), (size.too_large, "too large")
    )
    return f"{text} ({100 * likelihood:.0f} %)"


def _roles(roles: Iterable[job_pb2.RoleUse]) -> Table:
    rows = plain_table("ROLE", "MOST CPU", "MOST MEMORY", "CPU AND MEMORY")
    for each in roles:
        remark = plain_text(each.remark, no_wrap=False)
        add_row(rows, each.role, f"{each.cpu_cores:.2f}", format_bytes(each.memory_bytes), remark)
    return rows
