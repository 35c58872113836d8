"""Texts and tables for the terminal.

They need no package: the import of rich takes longer than `list` itself. Where a screen is drawn
again and again, rich draws them, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

_PIPE_WIDTH = 200
_GAP = "  "
_LEAST_WIDTH = 24
"""A column of texts is never narrower, even if the lines are then longer than the terminal."""
_CODES = {"": "", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}
_Part = tuple[str, str]
"""A text and its style: one of `_CODES`."""


class Shown:
    """Something that can be printed: it has lines, whose parts have styles."""

    def lines(self, width: int) -> Iterator[list[_Part]]:
        """Yield the lines for a terminal of this width."""
        raise NotImplementedError

    def text(self, width: int, *, colored: bool) -> str:
        """Return the lines as one text, each with its end."""
        lines = (_joined(_without_end(line), colored=colored) for line in self.lines(width))
        return "".join(f"{line}\n" for line in lines)

    def __rich_console__(self, _: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text as RichText

        text = self.text(options.max_width, colored=True).removesuffix("\n")
        yield RichText.from_ansi(text, no_wrap=True, overflow="ignore")


class Text(Shown):
    """A text of one or more lines, without control characters."""

    def __init__(self, text: str, style: str = "") -> None:
        self.parts: list[_Part] = [(text, style)]

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.parts)

    def append(self, text: str, style: str = "") -> Text:
        """Add a text with a style at the end, and return the whole."""
        self.parts.append((text, style))
        return self

    def lines(self, width: int) -> Iterator[list[_Part]]:
        """Yield the lines, wrapped between words."""
        for line in _split(self.parts):
            yield from _wrapped(line, width)


class Table(Shown):
    """Rows of cells below titles, without borders.

    Args:
        titles: a title for each column; none for a table without a line of titles.
        wrapped: titles of the columns whose texts take several lines if the terminal is narrow.
        cut: titles of the columns whose texts are cut then. Other columns keep their width: a cut
            name could not be copied.
    """

    def __init__(
        self, titles: Sequence[str], *, wrapped: Collection[str] = (), cut: Collection[str] = ()
    ) -> None:
        self._titles = titles
        self._wrapped = wrapped
        self._cut = cut
        self._rows: list[list[Text]] = []

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def add_row(self, cells: Iterable[Text], style: str = "") -> None:
        """Add a row. `style` is that of the texts that have none."""
        row = list(cells)
        for cell in row:
            cell.parts = [(text, own or style) for text, own in cell.parts]
        self._rows.append(row)

    def lines(self, width: int) -> Iterator[list[_Part]]:
        """Yield the line of titles, and the lines of each row."""
        rows = [*([[Text(title, "bold") for title in self._titles]] if self._titles else ())]
        rows += self._rows
        widths = self._widths(rows, width)
        for row in rows:
            yield from self._row_lines(row, widths)

    def _row_lines(self, row: list[Text], widths: list[int]) -> Iterator[list[_Part]]:
        cells = [
            self._cell_lines(cell, place, cell_width)
            for place, (cell, cell_width) in enumerate(zip(row, widths, strict=True))
        ]
        for number in range(max(map(len, cells), default=0)):
            line: list[_Part] = []
            for cell, cell_width in zip(cells, widths, strict=True):
                parts = cell[number] if number < len(cell) else []
                line += [*parts, (" " * (cell_width - _width(parts)) + _GAP, "")]
            yield line

    def _cell_lines(self, cell: Text, place: int, width: int) -> list[list[_Part]]:
        title = self._titles[place] if self._titles else ""
        if title in self._cut:
            return [_shortened(cell.plain, cell.parts[0][1], width)]
        if self._titles and title not in self._wrapped:
            return list(_split(cell.parts))
        return list(cell.lines(width))

    def _widths(self, rows: list[list[Text]], width: int) -> list[int]:
        """Return the width of each column; those that may be narrower share the rest."""
        found = [
            max(_width(line) for row in rows for line in _split(row[place].parts))
            for place in range(len(rows[0]) if rows else 0)
        ]
        elastic = {*self._wrapped, *self._cut}
        narrow = [place for place, title in enumerate(self._titles) if title in elastic]
        if not self._titles and found:
            narrow = [len(found) - 1]
        rest = width - sum(found) - len(_GAP) * (len(found) - 1)
        for place in sorted(narrow, key=lambda place: -found[place]):
            if rest < 0:
                smaller = max(min(found[place], _LEAST_WIDTH), found[place] + rest)
                rest += found[place] - smaller
                found[place] = smaller
        return found


class Page(Shown):
    """Several parts, one below the other."""

    def __init__(self, *parts: Shown) -> None:
        self._parts = parts

    def lines(self, width: int) -> Iterator[list[_Part]]:
        """Yield the lines of all parts."""
        for part in self._parts:
            yield from part.lines(width)


def show(shown: Shown) -> None:
    """Print on standard output, with colors and in the width of a terminal if it is one."""
    is_terminal = sys.stdout.isatty()
    width = _terminal_width() if is_terminal else _PIPE_WIDTH
    colored = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    sys.stdout.write(shown.text(width, colored=colored))
    sys.stdout.flush()


def _terminal_width() -> int:
    given = os.environ.get("COLUMNS", "")
    with suppress(OSError):
        return int(given) if given.isdecimal() else os.get_terminal_size(1).columns
    return _PIPE_WIDTH


def _split(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Yield the lines of a text."""
    line: list[_Part] = []
    for text, style in parts:
        first, *others = text.split("\n")
        line.append((first, style))
        for other in others:
            yield line
            line = [(other, style)]
    yield line


def _wrapped(line: list[_Part], width: int) -> Iterator[list[_Part]]:
    """Yield a line in parts that fit; a word that is longer is broken."""
    while _width(line) > width:
        plain = "".join(text for text, _ in line)
        most = _fitting(plain, width)
        space = plain.rfind(" ", 1, most + 1)
        end = space if space > 0 and plain[:space].strip() else most
        yield _slice(line, 0, end)
        line = _slice(line, end + (plain[end : end + 1] == " "), len(plain))
    yield line


def _shortened(text: str, style: str, width: int) -> list[_Part]:
    if _width([(text, style)]) > width:
        text = text[: _fitting(text, width - 1)].rstrip() + "…"
    return [(text, style)]


def _slice(line: list[_Part], start: int, end: int) -> list[_Part]:
    found = []
    place = 0
    for text, style in line:
        if part := text[max(start - place, 0) : max(end - place, 0)]:
            found.append((part, style))
        place += len(text)
    return found


def _without_end(line: list[_Part]) -> list[_Part]:
    """Return a line without the spaces at its end."""
    found = list(line)
    while found and not (text := found[-1][0].rstrip(" ")):
        found.pop()
    return [*found[:-1], (text, found[-1][1])] if found else found


def _joined(line: list[_Part], *, colored: bool) -> str:
    if not colored:
        return "".join(text for text, _ in line)
    return "".join(
        f"\033[{_CODES[style]}m{text}\033[0m" if style and text else text for text, style in line
    )


def _width(line: Iterable[_Part]) -> int:
    return sum(len(text) if text.isascii() else _columns(text) for text, _ in line)


def _columns(text: str) -> int:
    """Return the number of the terminal's columns that a text takes."""
    import unicodedata  # no text of an ordinary job needs it

    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _fitting(text: str, width: int) -> int:
    """Return the number of characters, at least one, that fit into this many columns."""
    if text.isascii():
        return max(width, 1)
    end = 1
    while end < len(text) and _columns(text[: end + 1]) <= width:
        end += 1
    return end
