"""Writes objects as YAML, with notes as comments at their fields. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import yaml
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert.report import Converted, Kind, Note

_WIDTH = 120
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|[\ud800-\udfff]")
"""Characters that end a comment, or are not allowed in YAML."""
_PLAIN = re.compile(r"[ -~]*")
_MAY_BE_SOMETHING_ELSE = re.compile(r"[-+.]?[0-9][0-9a-fxo_.:+-]*|[yn]|\.(inf|nan)", re.IGNORECASE)
"""Texts without quotes that some YAML readers parse as numbers or booleans, unlike PyYAML."""


class _Dumper(yaml.SafeDumper):
    """Keeps the order of fields, indents lists, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style: str | None = None
    if not _PLAIN.fullmatch(text.replace("\n", "")):
        style = '"'
    elif "\n" in text:
        style = "|"
    elif _MAY_BE_SOMETHING_ELSE.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.SequenceNode:
    numbers = bool(values) and all(isinstance(value, int) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=numbers)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def render(converted: Converted) -> str:
    """Return the object of a document as YAML, with its comments and notes as comments."""
    lines = _dumped(converted.object).rstrip("\n").split("\n")
    by = "unchanged." if converted.passed_through else "by elasticjob convert."
    separator = ":" if converted.passed_through else ","
    text = [f"# From {_source(converted)}{separator} {by}"]
    text += [_own(remark, 0) for place, remark in converted.comments if not place]
    notes = () if converted.passed_through else converted.notes
    text += [
        line
        for note in notes
        if not note.at
        for line in _comment(f"{note.field}: {_remark(note)}", 0)
    ]
    before = _before_lines(lines, converted.comments, notes)
    for number, line in enumerate(lines):
        text += before.get(number, ())
        text.append(line)
    return "\n".join(text) + "\n"


def _before_lines(
    lines: Sequence[str], comments: Sequence[tuple[Place, str]], notes: Sequence[Note]
) -> dict[int, list[str]]:
    """Return the comments before each line: those of the document, then the notes."""
    if not any(place for place, _ in comments) and not any(note.at for note in notes):
        return {}
    root = yaml.compose("\n".join(lines), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found: dict[int, list[str]] = {}
    for place, remark in comments:
        if place:
            number = _line(root, place)
            found.setdefault(number, []).append(_own(remark, _indentation(lines[number])))
    for note in notes:
        if note.at:
            number = _line(root, note.at)
            before = found.setdefault(number, [])
            parts = _comment(_remark(note), _indentation(lines[number]))
            before += [part for part in parts if part not in before]
    return found


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _own(text: str, indentation: int) -> str:
    """Return a comment of the document, on one line."""
    return (" " * indentation + "# " + _UNPRINTABLE.sub(" ", text)).rstrip()


def _source(converted: Converted) -> str:
    """Return the name of the document on one line of printable characters."""
    return re.sub(r"[^ -~]", "?", converted.source)


def _remark(note: Note) -> str:
    message = re.sub(r"[^ -~]+", " ", note.message)
    if note.kind is Kind.DIFFERS:
        return message
    return f"{note.kind}: {message}"


def _comment(text: str, indentation: int) -> list[str]:
    start = " " * indentation + "# "
    return textwrap.wrap(
        re.sub(r"[^ -~]+", " ", text),
        max(_WIDTH, indentation + 60),
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _dumped(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _line(node: yaml.Node | None, place: Place) -> int:
    """Return the first line of a field, or of the nearest existing field around it."""
    found = 0
    for part in place:
        inner = _inner(node, part)
        if inner is None:
            break
        found, node = inner
    return found


def _inner(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None
