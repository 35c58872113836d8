"""Reads a document field by field.

What has the wrong type is noted, and what nobody has read is lost. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_cli.convert.report import Report

MAX_CHARACTERS = 4096
"""Of a text that is read here; what is only passed on, such as commands, has no bound of its own.
"""


class Fields:
    """A map of a document.

    Each method reads one field; a field that is null counts as not there.
    """

    def __init__(self, values: object, path: str, report: Report) -> None:
        if not isinstance(values, dict):
            report.invalid(path, values, "a map")
        self._values: Json = values if isinstance(values, dict) else {}
        self._unread = {name for name, value in self._values.items() if value is not None}
        self.path = path
        self.report = report

    def where(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Return whether a field is there."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Read a field of any type; None if it is not there."""
        self._unread.discard(name)
        return self._values.get(name)

    def text(
        self, name: str, default: str = "", *, required: bool = False, choices: Collection[str] = ()
    ) -> str:
        """Read a text that is not empty, such as a name."""
        value = self.raw(name)
        if value is None and not required:
            return default
        if not isinstance(value, str) or not value:
            self.report.invalid(
                self.where(name), value, "a text; give it" if value is None else "a text"
            )
            return default
        if len(value) > MAX_CHARACTERS:
            self.report.invalid(
                self.where(name), value, f"a text of at most {MAX_CHARACTERS} characters"
            )
            return default
        if choices and value not in choices:
            self.report.invalid(self.where(name), value, f"one of {', '.join(choices)}")
            return default
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Read a whole number within bounds."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.report.invalid(self.where(name), value, f"a whole number from {low} to {high}")
            return None
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Read true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.report.invalid(self.where(name), value, "true or false")
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
            self.report.invalid(
                self.where(name), value, "a Kubernetes quantity such as 500m, 2 or 4Gi"
            )
            return None
        return value if isinstance(value, int) else text

    def map(self, name: str) -> Fields:
        """Read a map; an empty one if it is not there."""
        value = self.raw(name)
        return Fields({} if value is None else value, self.where(name), self.report)

    def maps(self, name: str) -> dict[str, Fields]:
        """Read a map of maps."""
        inner = self.map(name)
        return {key: Fields(inner.raw(key), inner.where(key), self.report) for key in inner.names()}

    def items(self, name: str) -> list[Any]:
        """Read a list; an empty one if it is not there."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            self.report.invalid(self.where(name), value, "a list")
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
        for key in inner.names():
            if not isinstance(inner.raw(key), str):
                self.report.invalid(inner.where(key), inner.raw(key), "a text; write it in quotes")
        return {key: value for key in inner.names() if isinstance(value := inner.raw(key), str)}

    def names(self) -> list[str]:
        """Return the names of the fields that are there."""
        return [name for name, value in self._values.items() if value is not None]

    def lose(self, name: str, message: str) -> None:
        """Note a field that has no equivalent, if it is there."""
        if self.raw(name) is not None:
            self.report.lost(self.where(name), message)

    def done(self) -> None:
        """Note all fields that were not read."""
        for name in sorted(self._unread):
            self.report.lost(self.where(name), "has no equivalent, or is not known; it is left out")
