"""Ends a save in a thread while the training goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from elasticjob._agent_connection import AgentError

log = logging.getLogger("elasticjob")

AnyOf = Callable[[bool], bool]
"""Returns whether its argument is true in any rank."""


class SaveInParts:
    """One call of the program's `save`, and of what it leaves to be done."""

    def __init__(self, save: Callable[[str], object], *, asynchronous: bool) -> None:
        """Use `save`; only if it is asynchronous, what it returns counts."""
        self._save = save
        self._asynchronous = asynchronous
        self._rest: object = None

    def begin(self, folder: str) -> None:
        """Call `save`; raises TypeError if it returns neither a function nor None."""
        rest = self._save(folder)
        if not self._asynchronous:
            return
        if not (rest is None or callable(rest)):
            raise TypeError(
                f"save has returned {rest!r:.100}; with asynchronous=True it returns a function "
                "that writes the rest, or None"
            )
        self._rest = rest

    def end(self) -> bool:
        """Call the function that `save` has returned, if any, and forget it; return True."""
        rest = self._rest
        self._rest = None
        if callable(rest):
            rest()
        return True


class AsynchronousSave:
    """The thread of this rank that ends one save at a time.

    Attributes:
        any_rank: an agreement with the threads of the other ranks; it is no collective of the
            program, which only its main thread may call.
    """

    def __init__(self, any_rank: AnyOf) -> None:
        """Begin without a save."""
        self.any_rank = any_rank
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, end: Callable[[], None]) -> None:
        """Call a function in the thread; the save before has ended."""

        def run() -> None:
            try:
                end()
            except AgentError as error:
                log.info("the save is given up: %s", error)
            except Exception as error:  # noqa: BLE001 (raised by the next step)
                self._error = error

        self._thread = threading.Thread(target=run, name="elasticjob-save", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the save has ended; raises what its function has raised."""
        if self._thread is not None:
            self._thread.join()
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what the function of an ended save has raised, once."""
        error = self._error
        self._error = None
        if error is not None:
            raise error
