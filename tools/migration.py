"""Writes the tables of docs/migrate/ from the rows of the converter.

A page has a table for each comment `<!-- fields of TITLE -->`, up to `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from elasticjob_cli.convert.tables.rows import TABLES, Fate, Row, Table

_PART = re.compile(r"(<!-- fields of (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return a page with its tables as the rows say."""
    return _PART.sub(lambda part: part[1] + _table(part[2]) + part[3], page)


def _table(title: str) -> str:
    kind, _, version = title.partition(" ")
    head = kind if "/" in version else title
    lines = [f"| {head} | Ours | What differs |", "|---|---|---|"]
    lines += _rows(TABLES[title])
    return "".join(f"{line}\n" for line in lines)


def _rows(table: Table) -> Iterator[str]:
    def same(row: Row) -> tuple[Fate, str, str]:
        return row.fate, row.ours, row.why

    for (fate, ours, why), rows in groupby(table, key=same):
        theirs = ", ".join(_code(row.theirs) for row in rows)
        words = f"lost: {why}" if fate is Fate.LOST else why
        cell = ", ".join(map(_code, ours.split(", "))) if ours else "–"  # noqa: RUF001
        yield f"| {theirs} | {cell} | {words.replace('|', chr(92) + '|')} |"


def _code(path: str) -> str:
    if path.startswith("metadata.annotations."):
        return f"annotation `{path.removeprefix('metadata.annotations.')}`"
    return f"`{path.removeprefix('spec.').removesuffix(' VALUE')}`"
