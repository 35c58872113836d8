"""A row says what becomes of a field, and why. Pure.

The notes about lost fields and the tables of docs/migrate/ are made from the rows, and tests
compare them with the peers' own definitions and with what the converter does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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
    ours: str = ""
    why: str = ""


Table = tuple[Row, ...]


def kept(theirs: str, ours: str) -> Row:
    """Return the row of a field with the same value and meaning."""
    return Row(theirs, Fate.KEPT, ours)


def changed(theirs: str, ours: str, why: str = "") -> Row:
    """Return the row of a field that is converted; without `ours` it is done in another way."""
    return Row(theirs, Fate.CHANGED, ours, why)


def lost(theirs: str, why: str) -> Row:
    """Return the row of a field without an equivalent."""
    return Row(theirs, Fate.LOST, "", why)


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
