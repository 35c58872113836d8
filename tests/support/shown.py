"""What a terminal shows of a table or a page of the command line."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def shown(what: RenderableType, width: int = 200) -> str:
    """Return its text in a terminal of a width."""
    screen = Console(width=width, markup=False, file=io.StringIO())
    with screen.capture() as captured:
        screen.print(what)
    return captured.get()


def shown_lines(what: RenderableType) -> list[str]:
    """Return the lines of its text, with one space between words."""
    return [" ".join(line.split()) for line in shown(what).splitlines()]
