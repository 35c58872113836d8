"""Shows the progress of a command: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

PLAIN_SECONDS = 30.0
"""The interval of a long step's lines without a terminal."""


class ProgressDisplay:
    """Displays on stderr, so that a shell's `eval` can use stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    def write(self, text: str) -> None:
        """Write one line."""
        self._console.print(escape(text), soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[], None]]:
        """Show that the step `text` is under way.

        The body calls the given function regularly while it waits.
        """
        began = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(escape(text)) as status:
                yield lambda: status.update(f"{escape(text)}: {time.monotonic() - began:.0f} s")
            return
        self.write(text)
        last_line = began

        def tick() -> None:
            nonlocal last_line
            if time.monotonic() - last_line >= PLAIN_SECONDS:
                last_line = time.monotonic()
                self.write(f"{text}: {last_line - began:.0f} s")

        yield tick
