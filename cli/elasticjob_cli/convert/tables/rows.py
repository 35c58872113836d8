"""A row says what becomes of a field, and why. Pure.

A file has a line `FATE | THEIRS, … | OURS, … | WHY` for each row, or for several that are alike but
for the first field. Above them is `# TITLE, …`: kinds with their versions, or the name of a list of
options or variables. A line `+ PART` stands for the rows below `## PART`.

The notes about lost fields and the tables of docs/migrate/ are made from the rows, and tests
compare them with the peers' own definitions and with what the converter does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from types import MappingProxyType


class Fate(StrEnum):
    """What becomes of a field."""

    KEPT = "kept"
    CHANGED = "changed"
    LOST = "lost"


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        theirs: the path of the field in the peer's object, where `<name>` stands for any key and
            `[]` for any element; or an option, or a variable. It also stands for the fields below
            it, unless those have rows.
        ours: the paths of the fields in the spec of our object, after commas; empty if there is
            none, because it is lost, or done in another way.
        why: what differs, as Markdown; for a lost field the text of the note.
    """

    theirs: str
    fate: Fate
    ours: str
    why: str


Table = tuple[Row, ...]


def option(row: Row) -> str:
    """Return the name of a row's option, without dashes in front."""
    return row.theirs.removeprefix("--").partition(" ")[0]


def reason(table: Iterable[Row], path: str) -> str:
    """Return why the field at a path of a document is lost; empty if no row says it."""
    pattern = re.sub(r"\[[0-9]+\]", "[]", path).split(".")
    for row in table:
        parts = row.theirs.split(".")
        if row.fate is Fate.LOST and len(parts) == len(pattern):
            pairs = zip(parts, pattern, strict=True)
            if all(ours in ("<name>", theirs) for ours, theirs in pairs):
                return row.why
    return ""


def _read() -> Iterator[tuple[str, Table]]:
    """Yield the title and the rows of each table."""
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".txt"):
            yield from _tables(file.read_text())


def _tables(text: str) -> Iterator[tuple[str, Table]]:
    sections = re.split(r"^(##?) (.+)$", text, flags=re.MULTILINE)
    parts: dict[str, Table] = {}
    for mark, titles, lines in zip(sections[1::3], sections[2::3], sections[3::3], strict=True):
        rows: list[Row] = []
        for line in filter(None, lines.splitlines()):
            if line.startswith("+ "):
                rows += parts[line.removeprefix("+ ")]
            else:
                rows += _rows(line)
        if mark == "##":
            parts[titles] = tuple(rows)
        else:
            yield from ((title, tuple(rows)) for title in titles.split(", "))


def _rows(line: str) -> Iterator[Row]:
    fate, theirs, *rest = (cell.strip() for cell in line.split("|"))
    ours, why = [*rest, "", ""][:2]
    yield from (Row(each, Fate(fate), ours, why) for each in theirs.split(", "))


TABLES: Mapping[str, Table] = MappingProxyType(dict(_read()))
"""What becomes of the fields of each kind, by kind and apiVersion; and of other lists by name."""
