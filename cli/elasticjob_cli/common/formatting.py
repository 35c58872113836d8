"""Formats values and tables for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from elasticjob_api.plain_text import printable
from elasticjob_api.times import format_time, parse_time

from elasticjob_cli.common.tables import Shown, Table, Text

T = TypeVar("T")
UNKNOWN = "-"


def plain_text(text: str = "", style: str = "", *, lines: bool = False) -> Text:
    """Return a text for the terminal, whose control characters are escaped.

    `lines`: keep the ends of lines, which are escaped otherwise.
    """
    return Text(printable(text, lines=lines), style)


def table_of(
    rows: Iterable[T],
    columns: Mapping[str, Callable[[T], str]],
    *,
    wrapped: Collection[str] = (),
    cut: Collection[str] = (),
    style: Callable[[T], str] = lambda _: "",
) -> Table:
    """Return a table without borders, with a line per row; control characters are escaped.

    Args:
        rows: what the lines are about.
        columns: the text of a row in each column, by the column's title.
        wrapped: the titles of the columns whose texts may take several lines.
        cut: the titles of the columns whose texts may be cut.
        style: returns the style of a row's line, such as a color.
    """
    table = Table(tuple(columns), wrapped=wrapped, cut=cut)
    for row in rows:
        table.add_row([plain_text(text_of(row)) for text_of in columns.values()], style(row))
    return table


def grid(rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table without titles, with a line per row of cells."""
    table = Table(())
    for row in rows:
        table.add_row(plain_text(cell) if isinstance(cell, str) else cell for cell in row)
    return table


def key_value_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table with a line per name and value."""
    return grid((plain_text(name, style="bold"), value) for name, value in rows)


def titled(title: str, table: Table) -> list[Shown]:
    """Return the parts that show a table below its title and an empty line; none for no rows."""
    return [plain_text(), plain_text(title, style="bold"), table] if table.row_count else []


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Return metrics on one line, in the order of their names."""
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items()))


def format_rate(samples_per_second: float) -> str:
    """Return a rate; a dash for 0, which means unknown."""
    return f"{samples_per_second:.5g} samples/s" if samples_per_second else UNKNOWN


def format_steps(done: int, total: int) -> str:
    """Return the finished steps, and all steps if they are known."""
    return f"{done}/{total}" if total else str(done)


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


def format_age(time: str, now: float) -> str:
    """Return the age of a time as kubectl prints it: 12s, 5m, 3h, 2d."""
    if not time:
        return UNKNOWN
    seconds = max(round(now - parse_time(time)), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
