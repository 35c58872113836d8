"""Reads a document field by field, and notes wrong types and fields that were not read. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert.report import Report

MAX_CHARACTERS = 4096
"""Bound of the texts that are read here, but not of copied texts such as commands."""


class Fields:
    """A map of a document.

    Each method reads one field; null counts as a missing field. Maps below are read as this one is:
    `done` covers them, but not the elements of lists.
    """

    def __init__(self, values: object, path: str, report: Report) -> None:
        if not isinstance(values, dict):
            report.invalid(path, values, "a map")
        self._values: Json = values if isinstance(values, dict) else {}
        self._unread = {name for name, value in self._values.items() if value is not None}
        self._maps: dict[str, Fields] = {}
        self.path = path
        self.report = report

    def where(self, name: str) -> str:
        """Return the path of a field; of the map itself for an empty name."""
        return ".".join(filter(None, (self.path, name)))

    def has(self, name: str) -> bool:
        """Return whether the map has a field."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Read a field of any type; None if it is missing."""
        self._unread.discard(name)
        return self._values.get(name)

    def text(
        self, name: str, default: str = "", *, required: bool = False, choices: Collection[str] = ()
    ) -> str:
        """Read a text that is not empty, such as a name."""
        value = self.raw(name)
        if value is None and not required:
            return default
        if value is None:
            self.invalid(name, value, "a text; give it")
        elif not isinstance(value, str) or not value:
            self.invalid(name, value, "a text")
        elif len(value) > MAX_CHARACTERS:
            self.invalid(name, value, f"a text of at most {MAX_CHARACTERS} characters")
        elif choices and value not in choices:
            self.invalid(name, value, f"one of {', '.join(choices)}")
        else:
            return value
        return default

    def any_text(self, name: str) -> str:
        """Read a text that may be empty or missing."""
        value = self.raw(name)
        if isinstance(value, str):
            return value
        if value is not None:
            self.invalid(name, value, "a text; write it in quotes")
        return ""

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Read a whole number within bounds."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.invalid(name, value, f"a whole number from {low} to {high}")
            return None
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Read true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.invalid(name, value, "true or false")
            return default
        return value

    def quantity(self, name: str) -> int | str | None:
        """Read a Kubernetes quantity."""
        value = self.raw(name)
        if value is None:
            return None
        text = str(value)
        try:
            if isinstance(value, bool | dict | list) or len(text) > 32:
                raise ValueError(text)
            parse_quantity(text)
        except ValueError:
            self.invalid(name, value, "a Kubernetes quantity such as 500m, 2 or 4Gi")
            return None
        return value if isinstance(value, int) else text

    def map(self, name: str) -> Fields:
        """Read a map; an empty one if it is missing."""
        if name not in self._maps:
            value = self.raw(name)
            self._maps[name] = Fields({} if value is None else value, self.where(name), self.report)
        return self._maps[name]

    def maps(self, name: str) -> dict[str, Fields]:
        """Read a map of maps."""
        inner = self.map(name)
        return {key: inner.map(key) for key in inner.names()}

    def items(self, name: str) -> list[Any]:
        """Read a list; an empty one if it is missing."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            self.invalid(name, value, "a list")
            return []
        return value or []

    def texts(self, name: str) -> list[str]:
        """Read a list of texts."""
        found = self.items(name)
        for position, value in enumerate(found):
            if not isinstance(value, str):
                self.report.invalid(
                    f"{self.where(name)}[{position}]", value, "a text; write it in quotes"
                )
        return [value for value in found if isinstance(value, str)]

    def list_of_maps(self, name: str) -> list[Fields]:
        """Read a list of maps."""
        return [
            Fields(value, f"{self.where(name)}[{position}]", self.report)
            for position, value in enumerate(self.items(name))
        ]

    def text_map(self, name: str) -> dict[str, str]:
        """Read a map of texts, such as labels."""
        inner = self.map(name)
        texts = {key: inner.any_text(key) for key in inner.names()}
        return {key: text for key, text in texts.items() if isinstance(inner.raw(key), str)}

    def names(self) -> list[str]:
        """Return the names of the fields that are not null."""
        return [name for name, value in self._values.items() if value is not None]

    def invalid(self, name: str, value: object, expected: str) -> None:
        """Note that a field cannot be read."""
        self.report.invalid(self.where(name), value, expected)

    def refused(self, name: str, message: str) -> None:
        """Note why the field rules out a conversion."""
        self.report.refused(self.where(name), message)

    def lost(self, name: str, message: str = "", at: Place = ()) -> None:
        """Note that a field has no equivalent; the table has the message, if none is given."""
        self.report.lost(self.where(name), message, at)

    def invented(self, name: str, message: str, at: Place = ()) -> None:
        """Note a value that the document does not have."""
        self.report.invented(self.where(name), message, at)

    def differs(self, name: str, message: str, at: Place = ()) -> None:
        """Note that a field is converted and means something else."""
        self.report.differs(self.where(name), message, at)

    def lose(self, name: str, message: str) -> None:
        """Note that a field has no equivalent, if the map has it."""
        if self.raw(name) is not None:
            self.lost(name, message)

    def done(self) -> None:
        """Note each field that was not read as lost, here and in the maps that were read."""
        for inner in self._maps.values():
            inner.done()
        for name in sorted(self._unread):
            self.lost(name)
