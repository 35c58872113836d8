"""Tells the user what is going on: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

PLAIN_SECONDS = 30.0
"""Without a terminal, a long step says that often that it goes on."""


class Progress:
    """Progress of one command, written to stderr so that stdout stays usable in a shell's `eval`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        """Write one line."""
        self._console.print(escape(text), soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[], None]]:
        """Show that `text` is under way; the step calls what it is given while it waits."""
        began = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(escape(text)) as status:
                yield lambda: status.update(f"{escape(text)}: {time.monotonic() - began:.0f} s")
            return
        self.say(text)
        said = began

        def tick() -> None:
            nonlocal said
            if time.monotonic() - said >= PLAIN_SECONDS:
                said = time.monotonic()
                self.say(f"{text}: {said - began:.0f} s")

        yield tick
