"""Formats values and tables for people: durations, sizes, times, enumerations. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.times import format_time
from rich.table import Table
from rich.text import Text

UNKNOWN = "-"


def key_value_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table with a line per name and value."""
    result = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        result.add_row(Text(name, style="bold"), Text(value))
    return result


def plain_table(*titles: str) -> Table:
    """Return an empty table without borders, whose cells are not wrapped."""
    result = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for column in result.columns:
        column.no_wrap = True
    return result


def format_enum(name: str, prefix: str) -> str:
    """Return a protobuf enumeration's value without its prefix, capitalized."""
    return name.removeprefix(prefix).capitalize()


def format_bytes(count: int) -> str:
    """Return a number of bytes as Kubernetes writes quantities, with three digits at most.

    950, 12.5Mi, 3Gi.
    """
    value = float(count)
    units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:{'.2f' if 0 < value < 1 else '.3g'}}{units[0]}"


def format_duration(seconds: float) -> str:
    """Return seconds as 1h 02m, 3m 20s or 12s.

    A dash for a negative number, which means unknown.
    """
    if seconds < 0:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def format_timestamp(seconds: float) -> str:
    """Return seconds since the epoch as Kubernetes writes times.

    A dash for 0, which means never.
    """
    return format_time(seconds) if seconds else UNKNOWN
