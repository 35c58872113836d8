"""Reads YAML documents as JSON values, with bounds on size, depth and number of values. Pure.

The builder handles the parser's events without recursion, so it knows the depth of a value before
it builds the value. Aliases count with all their values.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

Place = tuple[str | int, ...]
"""The place of a field in an object: names of fields, and positions in lists."""
MAX_BYTES = 1024 * 1024
MAX_DOCUMENTS = 200
MAX_DEPTH = 60
MAX_VALUES = 50_000
"""Values of one document; a long text counts as several values."""
_CHARACTERS_OF_A_VALUE = 64
_MERGE = "<<"
_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_OTHER_BASE = re.compile(r"0(x[0-9a-fA-F]{1,15}|o?[0-7]{1,20})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """The text is not YAML, or exceeds a bound; the message has the place and the remedy."""


@dataclass
class Document:
    """A document, and what its lines contain.

    Attributes:
        value: its values as JSON; None for an empty document.
        places: the field or element that begins first in a line, by the line.
        taken: the column in which the value of a line ends; 0 if it does not end there.
        last_line: the line of its end.
    """

    value: Any = None
    places: dict[int, Place] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    last_line: int = 0


def read(text: str) -> list[Any]:
    """Return the values of the documents of a text; empty ones are left out."""
    return [found.value for found in read_all(text) if found.value is not None]


def read_all(text: str) -> list[Document]:
    """Return the documents of a text.

    Raises:
        Unreadable: a document cannot be read.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise Unreadable(f"the input has more than {MAX_BYTES} bytes; split it")
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.handle(event)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise Unreadable(
            f"document {len(builder.documents) + 1}: not valid YAML: {problem}"
        ) from error
    return builder.documents


class _Builder:
    """Builds the values of the documents from the parser's events."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._begin()

    def _begin(self) -> None:
        self._document = Document()
        self._open: list[_Collection] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0

    def handle(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.NodeEvent):
            self._note_lines(event)
        match event:
            case yaml.DocumentStartEvent():
                self._begin()
                if len(self.documents) >= MAX_DOCUMENTS:
                    raise Unreadable(f"the input has more than {MAX_DOCUMENTS} documents; split it")
            case yaml.DocumentEndEvent():
                self._document.last_line = event.end_mark.line  # type: ignore[union-attr]
                self.documents.append(self._document)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self._open) >= MAX_DEPTH:
                    raise self._error(event, f"is nested deeper than {MAX_DEPTH}")
                if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
                    raise self._error(
                        event, f"has the tag {event.tag}, which is not for Kubernetes; remove it"
                    )
                values: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                self._open.append(_Collection(values, event.anchor, self._values))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                closed = self._open.pop()
                self._add(
                    event,
                    closed.values,
                    closed.anchor,
                    1,
                    contains=self._values - closed.values_before,
                )
            case yaml.ScalarEvent():
                in_key = bool(self._open) and self._open[-1].expects_key
                value = event.value if in_key else self._scalar(event)
                if _SURROGATES.search(event.value):
                    raise self._error(
                        event, "has half of a surrogate pair, which is not a character; remove it"
                    )
                self._add(
                    event, value, event.anchor, 1 + len(event.value) // _CHARACTERS_OF_A_VALUE
                )
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise self._error(
                        event,
                        f"alias *{event.anchor} has no complete value before it",
                    )
                value, size = self._anchors[event.anchor]
                self._add(event, value, None, size)

    def _note_lines(self, event: yaml.NodeEvent) -> None:
        """Note where a field or element begins, and the lines of a value, in which # is text."""
        start: Any = event.start_mark
        end: Any = event.end_mark
        if self._open and (place := self._open[-1].next_place(event)) is not None:
            around = (collection.place for collection in self._open[:-1])
            self._document.places.setdefault(start.line, (*around, place))
        if not isinstance(event, yaml.ScalarEvent):
            return
        is_block = event.style in ("|", ">")  # ends before the line of its end
        taken = self._document.taken
        taken |= dict.fromkeys(range(start.line, end.line if is_block else end.line + 1), 0)
        if is_block:
            taken[start.line] = start.column
        else:
            taken[end.line] = end.column

    def _add(
        self, event: yaml.Event, value: Any, anchor: str | None, size: int, contains: int = 0
    ) -> None:
        """Add a value to the open collection; `contains` of its values were counted before."""
        self._values += size
        if self._values > MAX_VALUES:
            raise self._error(
                event, f"has more than {MAX_VALUES} values, aliases included; split it"
            )
        if anchor is not None:
            self._anchors[anchor] = (value, size + contains)
        if not self._open:
            self._document.value = value
            return
        if problem := self._open[-1].add(value):
            raise self._error(event, problem)

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text: str = event.value
        if not event.implicit[0] and event.tag not in (None, "!") and event.tag != _TAG + "str":
            raise self._error(
                event, f"has the tag {event.tag}, which is not for Kubernetes; remove it"
            )
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _DECIMAL.fullmatch(text):
            return int(text)
        if _OTHER_BASE.fullmatch(text):
            return int(text, 16) if text[1] == "x" else int(text.replace("o", ""), 8)
        number = float(text) if _FLOAT.fullmatch(text) else None
        if _NOT_JSON.fullmatch(text) or (number is not None and not math.isfinite(number)):
            raise self._error(event, f"{text[:20]} is not a number of JSON")
        return text if number is None else number

    def _error(self, event: yaml.Event, problem: str) -> Unreadable:
        mark = event.start_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        return Unreadable(f"document {len(self.documents) + 1}, {where}: {problem}")


class _Collection:
    """A map or list under construction."""

    def __init__(self, values: Any, anchor: str | None, values_before: int) -> None:
        self.values = values
        self.anchor = anchor
        self.values_before = values_before
        self.expects_key = isinstance(values, dict)
        self._key = ""
        self._own: set[str] = set()

    @property
    def place(self) -> str | int:
        """The place of the value that is read: its key, or its position in a list."""
        return len(self.values) if isinstance(self.values, list) else self._key

    def next_place(self, event: yaml.NodeEvent) -> str | int | None:
        """Return the place that begins with a node; None for the value of a key."""
        if isinstance(self.values, list):
            return len(self.values)
        return getattr(event, "value", "") if self.expects_key else None

    def add(self, value: Any) -> str:
        """Add a value or a key; return the problem, if any."""
        if isinstance(self.values, list):
            self.values.append(value)
        elif self.expects_key:
            if not isinstance(value, str):
                return "is a key that is not a text"
            self._key = value
            self.expects_key = False
        else:
            self.expects_key = True
            if self._key == _MERGE:
                return self._merge(value)
            if self._key in self._own:
                return f"key {self._key!r} is given twice; remove one"
            self._own.add(self._key)
            self.values[self._key] = value
        return ""

    def _merge(self, value: Any) -> str:
        maps = value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in maps):
            return "<< needs an alias of a map"
        for each in maps:
            for key, inner in each.items():
                if key not in self.values:
                    self.values[key] = inner
        return ""
