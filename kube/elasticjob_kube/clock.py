"""Tells the time by the API server's clock while this machine's clock is wrong.

Deadlines, certificates and Leases compare the time with what the API server and other machines have
written. A clock that is an hour ahead would fail a running job, which nobody can undo.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from datetime import UTC, datetime

log = logging.getLogger(__name__)
MOST_SECONDS = 30.0
"""The difference between both clocks up to which this machine's clock is used."""
_SAMPLES = 5
"""The median counts, so that no single answer does."""
_PAUSE_SECONDS = 1.0
_LONGEST_REQUEST_SECONDS = 5.0
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MEAN_FRACTION = 0.5
"""The header `Date` has whole seconds."""


class Clock:
    """The present time, in seconds since 1970.

    Attributes:
        corrections: how often this machine's clock was found to be wrong.
    """

    def __init__(self) -> None:
        self.corrections = 0
        self._samples: deque[float] = deque(maxlen=_SAMPLES)
        """The API server's time minus the monotonic clock, so that no step of the clock counts."""
        self._next_at = 0.0
        self._is_wrong = False

    def now(self) -> float:
        """Return the time of this machine's clock, or the API server's if that is wrong."""
        ahead = self.seconds_ahead()
        return time.time() - (ahead if abs(ahead) > MOST_SECONDS else 0.0)

    def seconds_ahead(self) -> float:
        """Return the seconds by which this machine's clock is ahead; 0 before the first answer."""
        if not self._samples:
            return 0.0
        return time.time() - time.monotonic() - sorted(self._samples)[len(self._samples) // 2]

    def observe(self, date: str | None, seconds: float) -> None:
        """Learn from the header `Date` of an answer that took this many seconds."""
        now = time.monotonic()
        if now < self._next_at or seconds > _LONGEST_REQUEST_SECONDS:
            return
        try:
            server = _seconds(date or "")
        except (ValueError, OverflowError):
            return
        self._next_at = now + _PAUSE_SECONDS
        self._samples.append(server + _MEAN_FRACTION + seconds / 2 - now)
        self._warn()

    def _warn(self) -> None:
        ahead = self.seconds_ahead()
        is_wrong = abs(ahead) > MOST_SECONDS
        if is_wrong and not self._is_wrong:
            self.corrections += 1
            log.warning(
                "the clock of this machine is %.0f s %s the API server's, whose time counts "
                "until they agree within %.0f s; check the time service of both machines",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                MOST_SECONDS,
            )
        elif self._is_wrong and not is_wrong:
            log.info("the clock of this machine agrees with the API server's again")
        self._is_wrong = is_wrong


def _seconds(date: str) -> float:
    """Return a header `Date` in seconds since 1970. Raises `ValueError`, `OverflowError`.

    HTTP has one form of it: `Sun, 06 Nov 1994 08:49:37 GMT`. The parser of Python's email package,
    which knows many, takes as long to import as a twentieth of a command of the user.
    """
    _, day, month, year, clock, _ = date.split()
    hour, minute, second = map(int, clock.split(":"))
    number = _MONTHS.index(month) + 1
    return datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC).timestamp()
