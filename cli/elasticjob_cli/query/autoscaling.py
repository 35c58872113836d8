"""Renders the auto-scaler's measurements, its present activity and its pauses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from elasticjob_api.v1 import job_pb2

from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_rate,
    format_timestamp,
    key_value_table,
    plain_text,
    table_of,
)
from elasticjob_cli.common.tables import Page, Shown, Table


def is_of_interest(known: job_pb2.Autoscaling) -> bool:
    """Return whether auto-scaling is on, or sizes have been measured."""
    return known.enabled or any(size.samples_per_second for size in known.sizes)


def render_autoscaling(known: job_pb2.Autoscaling) -> Shown:
    """Return lines about the activity, a row per size, and a row per changed role."""
    if not is_of_interest(known):
        return plain_text("Auto-scaling is off, and no size has been measured.")
    parts: list[Shown] = [key_value_table(_lines(known))]
    if known.sizes:
        parts += [plain_text(), _sizes(known)]
    changed = [role for role in known.roles if role.remark]
    if changed:
        columns: dict[str, Callable[[job_pb2.RoleUse], str]] = {
            "ROLE": lambda role: role.role,
            "MOST CPU": lambda role: f"{role.cpu_cores:.2f}",
            "MOST MEMORY": lambda role: format_bytes(role.memory_bytes),
            "CPU AND MEMORY": lambda role: role.remark,
        }
        parts += [plain_text(), table_of(changed, columns, wrapped=("CPU AND MEMORY",))]
    return Page(*parts)


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
    if known.node_members:
        yield "Nodes", f"have room for {known.node_members} members each, as the pods show"
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
    def measured(size: job_pb2.SizeBelief, text: str) -> str:
        return text if size.samples_per_second else UNKNOWN

    def expected(size: job_pb2.SizeBelief, text: str) -> str:
        return text if size.expected else UNKNOWN

    columns: dict[str, Callable[[job_pb2.SizeBelief], str]] = {
        "SIZE": lambda size: f"{size.size} *" if size.size == known.size else str(size.size),
        "MEASURED": lambda size: format_rate(size.samples_per_second),
        "WINDOWS": lambda size: measured(size, f"{size.windows:.1f}"),
        "ERROR": lambda size: measured(size, f"{100 * size.relative_error:.1f} %"),
        "EXPECTED": lambda size: expected(
            size, f"{size.expected_from:.4g} to {size.expected_to:.4g}"
        ),
        "BELIEVED TO BE": lambda size: expected(size, _belief(size)),
    }
    if any(size.means for size in known.sizes):
        columns["MEANS"] = lambda size: size.means or UNKNOWN
    return table_of(known.sizes, columns)


def _belief(size: job_pb2.SizeBelief) -> str:
    """Return the likeliest of three judgements of a size."""
    right = max(0.0, 1 - size.too_small - size.too_large)
    likelihood, text = max(
        (right, "about right"), (size.too_small, "too small"), (size.too_large, "too large")
    )
    return f"{text} ({100 * likelihood:.0f} %)"
