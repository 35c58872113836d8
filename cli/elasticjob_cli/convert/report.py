"""Collects the notes about a conversion: errors, losses, inventions and differences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elasticjob_api.meta import Json
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert.tables.rows import Table, reason

_UNKNOWN = "is unknown; it is left out"
_BRACES = re.compile(r"\{\{(?!FC_)")
_ACTION = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files)\b|(?:include|tpl)\s)"
)
_SHOWN_CHARACTERS = 80
_MOST_CHARACTERS = 600
"""Bound of a field's path, and of a message."""


class Kind(StrEnum):
    """The kind of a note, in the order of a report."""

    INVALID = "error"
    LOST = "lost"
    INVENTED = "invented"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Note:
    """A note about a field.

    Attributes:
        field: the path in the document.
        at: the place of the comment with the message in the written object; empty: at its top.
    """

    kind: Kind
    field: str
    message: str
    at: Place = ()

    def line(self) -> str:
        """Return the line of the report."""
        return f"{self.kind}: {self.field}: {self.message}"


@dataclass
class Report:
    """Collects the notes about one document, without duplicates.

    Attributes:
        table: says why fields of this kind of document are lost.
    """

    notes: list[Note] = field(default_factory=list)
    table: Table = ()

    def invalid(self, where: str, value: object, expected: str) -> None:
        """Note a value that cannot be read."""
        self.add(Kind.INVALID, where, f"is {shown(value)}, but must be {expected}{hint(value)}")

    def refused(self, where: str, message: str) -> None:
        """Note why the object cannot be converted."""
        self.add(Kind.INVALID, where, message)

    def lost(self, where: str, message: str = "", at: Place = ()) -> None:
        """Note that a field has no equivalent; the table has the message, if none is given."""
        self.add(Kind.LOST, where, message or reason(self.table, where) or _UNKNOWN, at)

    def invented(self, where: str, message: str, at: Place = ()) -> None:
        """Note a value that the document does not have."""
        self.add(Kind.INVENTED, where, message, at)

    def differs(self, where: str, message: str, at: Place = ()) -> None:
        """Note that a field is converted and means something else."""
        self.add(Kind.DIFFERS, where, message, at)

    @property
    def failed(self) -> bool:
        """Whether the document has an error."""
        return any(note.kind is Kind.INVALID for note in self.notes)

    def add(self, kind: Kind, where: str, message: str, at: Place = ()) -> None:
        """Add a note of any kind."""
        note = Note(kind, where[:_MOST_CHARACTERS], message[:_MOST_CHARACTERS], at)
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Converted:
    """The result for one document.

    Attributes:
        source: names the document, such as `document 2, TrainingJob elastic-training`.
        object: the object to write; None if the document has errors.
        notes: about the conversion.
        passed_through: whether the object is written unchanged.
        comments: the document's own, with their places in the object.
    """

    source: str
    object: Json | None
    notes: Sequence[Note] = ()
    passed_through: bool = False
    comments: Sequence[tuple[Place, str]] = ()

    @property
    def title(self) -> str:
        """Kind and name of the written object."""
        if self.object is None:
            return "nothing"
        return " ".join(map(str, filter(None, (self.object.get("kind"), name_of(self.object)))))


def hint(value: object) -> str:
    """Return what to do about the text of a chart of Helm; empty if it is no such text."""
    is_template = isinstance(value, str) and _BRACES.search(value)
    return "; render the template first, such as with helm template" if is_template else ""


def field_of_a_chart(value: object, path: str = "") -> str:
    """Return the path of the first text with an action of Helm; empty if there is none."""
    if isinstance(value, str):
        return path if _ACTION.search(value) else ""
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        inner = ((f"{path}.{key}".removeprefix("."), each) for key, each in value.items())
    elif isinstance(value, list):
        inner = ((f"{path}[{number}]", each) for number, each in enumerate(value))
    return next(filter(None, (field_of_a_chart(each, where) for where, each in inner)), "")


def name_of(document: Json) -> object:
    """Return the name of an object, or its `generateName`."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return None
    return metadata.get("name") or metadata.get("generateName")


def shown(value: object) -> str:
    """Return a value for people, on one line and shortened."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        return text[: _SHOWN_CHARACTERS - 1] + "…"
    return text
