"""Shows what a job's auto-scaler knows, what it does, and why no more. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.v1 import job_pb2
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticjob_cli.query.formatting import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_timestamp,
    key_value_table,
    plain_table,
)


def is_of_interest(known: job_pb2.Autoscaling) -> bool:
    """Return whether there is anything to show: auto-scaling is on, or sizes were measured."""
    return known.enabled or any(size.samples_per_second for size in known.sizes)


def render_autoscaling(known: job_pb2.Autoscaling) -> RenderableType:
    """Return a few lines about what it does, a row per size, and a row per role that was changed."""
    if not is_of_interest(known):
        return Text("Auto-scaling is off, and no size has been measured.")
    parts: list[RenderableType] = [key_value_table(_lines(known))]
    if known.sizes:
        parts += [Text(), _sizes(known)]
    changed = [role for role in known.roles if role.remark]
    if changed:
        parts += [Text(), _roles(changed)]
    return Group(*parts)


def _lines(known: job_pb2.Autoscaling) -> Iterable[tuple[str, str]]:
    state = "off, measures only" if not known.enabled else "on"
    if known.enabled and known.settled_size:
        state += f", settled at {known.settled_size}"
    yield "Auto-scaling", state
    yield (
        "Sizes",
        f"{known.role} has {known.size}, may have {known.minimum} to {known.maximum} ({known.limit})",
    )
    if known.objective:
        yield "Objective", known.objective
    if known.best_to:
        best = (
            str(known.best_to)
            if known.best_from == known.best_to
            else f"{known.best_from} to {known.best_to}"
        )
        yield "Best size", f"{best}, with a likelihood of at least 90 %"
    yield "Now", _activity(known)
    if known.retry_time:
        again = format_timestamp(known.retry_time)
        yield (
            "Pause",
            f"no more than {known.had_size} members could be had; more are requested from {again} on",
        )
    if known.resources_retry_time:
        again = format_timestamp(known.resources_retry_time)
        yield (
            "Pause",
            f"a plan for CPU or memory has failed; the next one may be made from {again} on",
        )
    if known.rescale_seconds:
        yield "Rescale", f"costs {format_duration(known.rescale_seconds)} of training"
    if known.decided:
        yield "Decided", f"{format_timestamp(known.decided)}: {known.reason}"


def _activity(known: job_pb2.Autoscaling) -> str:
    if known.waiting_for:
        return f"waits for {known.waiting_for}"
    measuring = f"measuring {known.size} members: {100 * known.window_part:.0f} % of the window"
    if known.decision_seconds < 0:
        return measuring
    return f"{measuring}, the next decision in at most {format_duration(known.decision_seconds)}"


def _sizes(known: job_pb2.Autoscaling) -> Table:
    means = ("MEANS",) if any(each.means for each in known.sizes) else ()
    rows = plain_table("SIZE", "MEASURED", "WINDOWS", "ERROR", "EXPECTED", "BELIEVED TO BE", *means)
    for each in known.sizes:
        measured = bool(each.samples_per_second)
        rows.add_row(
            f"{each.size} *" if each.size == known.size else str(each.size),
            f"{each.samples_per_second:.5g} samples/s" if measured else UNKNOWN,
            f"{each.windows:.1f}" if measured else UNKNOWN,
            f"{100 * each.relative_error:.1f} %" if measured else UNKNOWN,
            f"{each.expected_from:.4g} to {each.expected_to:.4g}" if each.expected else UNKNOWN,
            _belief(each) if each.expected else UNKNOWN,
            *([each.means or UNKNOWN] if means else []),
        )
    return rows


def _belief(size: job_pb2.SizeBelief) -> str:
    """Return the likeliest of three answers."""
    right = max(0.0, 1 - size.too_small - size.too_large)
    likelihood, text = max(
        (right, "about right"), (size.too_small, "too small"), (size.too_large, "too large")
    )
    return f"{text} ({100 * likelihood:.0f} %)"


def _roles(roles: Iterable[job_pb2.RoleUse]) -> Table:
    rows = plain_table("ROLE", "MOST CPU", "MOST MEMORY", "CPU AND MEMORY")
    for each in roles:
        remark = Text(each.remark, no_wrap=False)
        rows.add_row(each.role, f"{each.cpu_cores:.2f}", format_bytes(each.memory_bytes), remark)
    return rows
