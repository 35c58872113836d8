"""Carries the comments of a document to the fields that its own fields become. Pure.

The parser's events have no comments, but the lines of fields: a comment belongs to the field that
begins in the next line, or in its own. The tables say where the field is in the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.report import Place
from elasticjob_cli.convert.tables.rows import Table

Comments = tuple[tuple[Place, str], ...]
MAX_PLACED = 500
"""Comments of a document that are placed at their fields; later ones stand at the top."""
_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_COMMENT = re.compile(r"[ \t]*#(?P<text>.*)")
_TRAILING = re.compile(r"[ \t,\]}:|>+0-9-]*[ \t]#(?P<text>.*)")
"""What follows a value: the ends of collections, or the beginning of a value that is not there."""


def comments(text: str) -> list[Comments]:
    """Return the comments of each document of a text that can be read.

    The place of a comment is that of its field in the document.
    """
    lines = _BREAK.split(text)
    found: list[Comments] = []
    first = 0
    for places, taken, last in _documents(text):
        end = min(last, len(lines) - 1)
        found.append(tuple(_of_lines(lines, first, end, places, taken)))
        first = end + 1
    return found


def _of_lines(
    lines: Sequence[str], first: int, last: int, places: dict[int, Place], taken: dict[int, int]
) -> Iterator[tuple[Place, str]]:
    """Yield the comments of some lines.

    `places` are the fields by their line; `taken` has the column in which the value of a line ends.
    """
    waiting: list[str] = []
    for number in range(first, last + 1):
        found = _COMMENT.fullmatch(lines[number])
        if number in taken:
            found = _TRAILING.fullmatch(lines[number], taken[number]) if taken[number] else None
        own = [found["text"].strip()] if found else []
        if number in places:
            yield from ((places[number], text) for text in (*waiting, *own))
            waiting = []
        else:
            waiting += own
    yield from (((), text) for text in waiting)


def _documents(text: str) -> Iterator[tuple[dict[int, Place], dict[int, int], int]]:
    """Yield the fields by line, the ends of values by line, and the last line of each document."""
    places: dict[int, Place] = {}
    taken: dict[int, int] = {}
    path: list[Any] = []  # of each open collection: a key, or a position in a list
    expects_key: list[bool | None] = []  # None: a list
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.DocumentStartEvent):
            places = {}
            taken = {}
        elif isinstance(event, yaml.DocumentEndEvent):
            yield places, taken, _position(event.end_mark)[0]
        elif isinstance(event, yaml.NodeEvent):
            if path and expects_key[-1] is None:
                path[-1] += 1
            elif path and expects_key[-1]:
                path[-1] = getattr(event, "value", "")
            if path and expects_key[-1] is not False:
                places.setdefault(_position(event.start_mark)[0], tuple(path))
            if isinstance(event, yaml.ScalarEvent):
                _take(taken, event)
            if path and expects_key[-1] is not None:
                expects_key[-1] = not expects_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                is_map = isinstance(event, yaml.MappingStartEvent)
                path.append("" if is_map else -1)
                expects_key.append(True if is_map else None)
        elif isinstance(event, yaml.CollectionEndEvent):
            path.pop()
            expects_key.pop()


def _take(taken: dict[int, int], event: yaml.ScalarEvent) -> None:
    """Note the lines of a value, in which # is text; a block ends before the line of its end."""
    first, first_column = _position(event.start_mark)
    last, last_column = _position(event.end_mark)
    is_block = event.style in ("|", ">")
    taken |= dict.fromkeys(range(first, last if is_block else last + 1), 0)
    if is_block:
        taken[first] = first_column
    else:
        taken[last] = last_column


def _position(mark: Any) -> tuple[int, int]:
    """Return line and column of a mark, which the parser always gives."""
    return mark.line, mark.column


def placed(found: Comments, document: Any, written: Any, table: Table) -> Comments:
    """Return comments with the places of their fields in the written object."""
    near = [(_place(place, document, written, table), text) for place, text in found[:MAX_PLACED]]
    return (*near, *(((), text) for _, text in found[MAX_PLACED:]))


def _place(place: Place, document: Any, written: Any, table: Table) -> Place:
    if place[:1] != ("spec",):
        return _followed(document, written, place, ())
    best: tuple[int, Place] = (1, ("spec",))
    for row in table:
        theirs = row.theirs.replace("[]", ".[]").split(".")
        if row.ours and len(theirs) > best[0] and _matches(theirs, place):
            role = _role(theirs, place, document)
            ours = row.ours.split(", ")[0].replace("[]", "").split(".")
            if ours[0] != "metadata":
                ours = ["spec", *ours]
            best = len(theirs), tuple(role if part == "<role>" else part for part in ours)
    length, ours_place = best
    source = _value(document, place[:length])
    target = _value(written, ours_place)
    return (*ours_place, *_followed(source, target, place[length:], ()))


def _matches(theirs: Sequence[str], place: Place) -> bool:
    if len(theirs) > len(place):
        return False
    return all(
        part == "<name>" or part == key or (part == "[]" and isinstance(key, int))
        for part, key in zip(theirs, place, strict=False)
    )


def _role(theirs: Sequence[str], place: Place, document: Any) -> str:
    """Return the role of a group of pods: by its key, or by the name that the element has."""
    for position, part in enumerate(theirs):
        if part == "<name>":
            return role_name(str(place[position]).lower())
        if part == "[]":
            group = _value(document, place[: position + 1])
            if isinstance(group, dict):
                return role_name(str(group.get("name") or group.get("replicaType")).lower())
    return ""


def _value(value: Any, place: Place) -> Any:
    for part in place:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _followed(source: Any, written: Any, place: Place, done: Place) -> Place:
    """Return how far the same place is in the written value; elements are found by their names."""
    if not place:
        return done
    part = place[0]
    inner = _value(source, (part,))
    if isinstance(part, int) and isinstance(written, list):
        named = [_name(element) for element in written]
        if _name(inner) not in named:
            return done
        part = named.index(_name(inner))
    elif not isinstance(written, dict) or part not in written:
        return done
    return _followed(inner, _value(written, (part,)), place[1:], (*done, part))


def _name(element: Any) -> Any:
    return element.get("name", element) if isinstance(element, dict) else element
