"""Decides when the controller decides.

One decision is made for many events that arrive together, and decisions take a small share of the
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_GATHER_SECONDS = 0.005
_SHARE_OF_TIME = 0.1
"""The largest share of the time that decisions may take: after one about thousands of members, the
next follows later.
"""
_LONGEST_PAUSE_SECONDS = 0.5


class DecisionTimer:
    """Calls a function soon after a request. The pauses grow with the time that it takes."""

    def __init__(
        self,
        decide: Callable[[], None],
        clock: Callable[[], float],
        share_of_time: float = _SHARE_OF_TIME,
    ) -> None:
        self._decide = decide
        self._share_of_time = share_of_time
        self._clock = clock
        self._requested = False
        self._decided_at = 0.0
        self._decision_seconds = 0.0

    def request(self) -> None:
        """Request a decision soon."""
        if not self._requested:
            self._requested = True
            since = self._clock() - self._decided_at
            delay = max(0.0, self.pause(_GATHER_SECONDS) - since)
            asyncio.get_running_loop().call_later(delay, self._decide_if_requested)

    def pause(self, least: float) -> float:
        """Return the seconds between two decisions, at least these."""
        return min(max(least, self._decision_seconds / self._share_of_time), _LONGEST_PAUSE_SECONDS)

    def decide_if_due(self) -> None:
        """Decide, unless a decision was made for events within the last pause."""
        if self._clock() - self._decided_at >= self.pause(0.0):
            self.decide_now()

    def decide_now(self) -> None:
        """Decide, whether or not it was requested."""
        self._requested = False
        began = time.thread_time()  # without the time that other processes take meanwhile
        self._decided_at = self._clock()
        self._decide()
        self._decision_seconds = time.thread_time() - began

    def _decide_if_requested(self) -> None:
        if self._requested:
            self.decide_now()
