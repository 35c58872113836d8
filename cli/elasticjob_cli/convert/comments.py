"""Carries the comments of a document to the fields that its own fields become. Pure.

The parser's events have no comments, but the lines of fields: a comment belongs to the field that
begins in the next line, or in its own. The tables say where the field is in the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from elasticjob_api.yaml_documents import Document, Place

from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.tables.rows import Table

Comments = tuple[tuple[Place, str], ...]
MAX_PLACED = 500
"""Comments of a document that are placed at their fields; later ones stand at the top."""
_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_COMMENT = re.compile(r"[ \t]*#(?P<text>.*)")
_TRAILING = re.compile(r"[ \t,\]}:|>+0-9-]*[ \t]#(?P<text>.*)")
"""What follows a value: the ends of collections, or the beginning of a value that is not there."""


def comments(text: str, documents: Sequence[Document]) -> list[Comments]:
    """Return the comments of each document of a text.

    The place of a comment is that of its field in the document.
    """
    lines = _BREAK.split(text)
    found: list[Comments] = []
    first = 0
    for document in documents:
        end = min(document.last_line, len(lines) - 1)
        found.append(tuple(_of_lines(lines, first, end, document)))
        first = end + 1
    return found


def _of_lines(
    lines: Sequence[str], first: int, last: int, document: Document
) -> Iterator[tuple[Place, str]]:
    """Yield the comments of some lines."""
    taken = document.taken
    waiting: list[str] = []
    for number in range(first, last + 1):
        found = _COMMENT.fullmatch(lines[number])
        if number in taken:
            found = _TRAILING.fullmatch(lines[number], taken[number]) if taken[number] else None
        own = [found["text"].strip()] if found else []
        if number in document.places:
            yield from ((document.places[number], text) for text in (*waiting, *own))
            waiting = []
        else:
            waiting += own
    yield from (((), text) for text in waiting)


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
