"""What a conversion has to tell.

What is lost, what was invented, what differs, and what cannot be read. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elasticjob_api.meta import Json

Place = tuple[str | int, ...]
"""Where a field is in an object that was written: names of fields, and positions in lists."""
_SHOWN_CHARACTERS = 80
_MOST_CHARACTERS = 600
"""Of a field's path, or of a message."""


class Kind(StrEnum):
    """What a note says. In the order in which a report lists them."""

    INVALID = "error"
    LOST = "lost"
    INVENTED = "invented"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Note:
    """One thing to tell.

    Attributes:
        field: of the document that was read.
        at: the field of the object that was written, where a comment says the same; empty: at its top.
    """

    kind: Kind
    field: str
    message: str
    at: Place = ()

    def line(self) -> str:
        """Return it as a line of the report."""
        return f"{self.kind}: {self.field}: {self.message}"


@dataclass
class Report:
    """Collects the notes about one document, in the order in which it is read.

    The same note once.
    """

    notes: list[Note] = field(default_factory=list)

    def invalid(self, where: str, value: object, expected: str) -> None:
        """Note a value that cannot be read."""
        self._add(Note(Kind.INVALID, where, f"is {shown(value)}, but must be {expected}"))

    def refused(self, where: str, message: str) -> None:
        """Note why there can be no such object of ours."""
        self._add(Note(Kind.INVALID, where, message))

    def lost(self, where: str, message: str, at: Place = ()) -> None:
        """Note what has no equivalent."""
        self._add(Note(Kind.LOST, where, message, at))

    def invented(self, where: str, message: str, at: Place = ()) -> None:
        """Note a value that the document does not have."""
        self._add(Note(Kind.INVENTED, where, message, at))

    def differs(self, where: str, message: str, at: Place = ()) -> None:
        """Note what is converted and means something else, or is done in another way."""
        self._add(Note(Kind.DIFFERS, where, message, at))

    @property
    def failed(self) -> bool:
        """Whether something cannot be read."""
        return any(note.kind is Kind.INVALID for note in self.notes)

    def _add(self, note: Note) -> None:
        short = replace(
            note, field=note.field[:_MOST_CHARACTERS], message=note.message[:_MOST_CHARACTERS]
        )
        if short not in self.notes:
            self.notes.append(short)


@dataclass(frozen=True)
class Converted:
    """What became of one document.

    Attributes:
        source: which document, such as `document 2, TrainingJob elastic-training`.
        object: the object to write; None: nothing can be written.
        notes: what there is to tell about it.
        passed_through: it is written as it was read.
    """

    source: str
    object: Json | None
    notes: Sequence[Note] = ()
    passed_through: bool = False

    @property
    def title(self) -> str:
        """Return kind and name of the object that is written."""
        if self.object is None:
            return "nothing"
        metadata = self.object.get("metadata")
        name = (
            (metadata.get("name") or metadata.get("generateName"))
            if isinstance(metadata, dict)
            else None
        )
        return f"{self.object.get('kind')} {name}" if name else str(self.object.get("kind"))


def shown(value: object) -> str:
    """Return a value for people, on one line and shortened."""
    text = (
        repr(value)
        if not isinstance(value, dict | list)
        else "a map"
        if isinstance(value, dict)
        else "a list"
    )
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
