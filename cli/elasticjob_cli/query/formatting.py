"""Formats values and tables for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from elasticjob_api.plain_text import printable
from elasticjob_api.times import format_time
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from elasticjob_api.v1 import agent_pb2, job_pb2

UNKNOWN = "-"


def plain_text(
    text: str = "", style: str = "", *, no_wrap: bool | None = None, lines: bool = False
) -> Text:
    """Return a text for the terminal, whose control characters are escaped.

    `lines`: keep the ends of lines, which are escaped otherwise.
    """
    return Text(printable(text, lines=lines), style=style, no_wrap=no_wrap)


def add_row(table: Table, *cells: str | Text, style: str = "") -> None:
    """Add a line to a table; control characters of its cells are escaped."""
    table.add_row(
        *(plain_text(each) if isinstance(each, str) else each for each in cells), style=style
    )


def key_value_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table with a line per name and value."""
    result = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        add_row(result, plain_text(name, style="bold"), value)
    return result


def plain_table(*titles: str) -> Table:
    """Return an empty table without borders, whose cells are not wrapped."""
    result = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for column in result.columns:
        column.no_wrap = True
    return result


def format_phase(phase: job_pb2.JobPhase.ValueType) -> str:
    """Return a phase of the training, such as `Training`."""
    from elasticjob_api.v1 import job_pb2  # slow; the tables of `elasticjob list` need no protobuf

    return job_pb2.JobPhase.Name(phase).removeprefix("JOB_PHASE_").capitalize()


def format_member_state(state: agent_pb2.MemberState.ValueType) -> str:
    """Return the state of a member, such as `Running`."""
    from elasticjob_api.v1 import agent_pb2  # slow, see format_phase

    return agent_pb2.MemberState.Name(state).removeprefix("MEMBER_STATE_").capitalize()


def format_rank(rank: int | None) -> str:
    """Return a rank; a dash for a member outside of the world."""
    return UNKNOWN if rank is None else str(rank)


def format_step_time(seconds: float) -> str:
    """Return the seconds of a step; a dash for 0, which means unknown."""
    return f"{seconds:.3g} s" if seconds else UNKNOWN


def format_gpu(usage: agent_pb2.ResourceUsage) -> str:
    """Return the use of the GPUs; a dash for a member without GPUs."""
    return f"{usage.gpu_percent} %" if usage.gpu_memory_bytes else UNKNOWN


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Return metrics on one line, in the order of their names."""
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items()))


def format_rate(samples_per_second: float) -> str:
    """Return a rate; a dash for 0, which means unknown."""
    return f"{samples_per_second:.5g} samples/s" if samples_per_second else UNKNOWN


def format_bytes(count: int) -> str:
    """Return a number of bytes as a quantity with up to three digits, such as 950, 12.5Mi, 3Gi."""
    value = float(count)
    units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = ".2f" if 0 < value < 1 else ".3g"
    return f"{value:{digits}}{units[0]}"


def format_duration(seconds: float) -> str:
    """Return seconds as 1h 02m, 3m 20s or 12s; a dash for negative numbers (unknown)."""
    if seconds < 0:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02}m"
    if minutes:
        return f"{minutes}m {rest:02}s"
    return f"{rest}s"


def format_timestamp(seconds: float) -> str:
    """Return seconds since the epoch as Kubernetes writes times; a dash for 0 (never)."""
    return format_time(seconds) if seconds else UNKNOWN
