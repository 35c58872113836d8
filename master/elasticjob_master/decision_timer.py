"""When the controller decides.

For many events that arrive together once, and never for most of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_TOGETHER_SECONDS = 0.005
_SHARE_OF_TIME = 0.1
"""That decisions may take, at most: one looks at every member, and with thousands of them comes
less often.
"""
_LONGEST_PAUSE_SECONDS = 0.5


class DecisionTimer:
    """Calls a function soon after it is requested, with a pause that grows with the time the function takes."""

    def __init__(self, decide: Callable[[], None], clock: Callable[[], float]) -> None:
        self._decide = decide
        self._clock = clock
        self._requested = False
        self._decided_at = 0.0
        self._took = 0.0

    def request(self) -> None:
        """Have a decision made soon."""
        if not self._requested:
            self._requested = True
            since = self._clock() - self._decided_at
            delay = max(0.0, self.pause(_TOGETHER_SECONDS) - since)
            asyncio.get_running_loop().call_later(delay, self._decide_if_requested)

    def pause(self, least: float) -> float:
        """Return the seconds between two decisions."""
        return min(max(least, self._took / _SHARE_OF_TIME), _LONGEST_PAUSE_SECONDS)

    def decide_now(self) -> None:
        """Decide, whether or not it was requested."""
        self._requested = False
        began = (
            time.thread_time()
        )  # the time that other processes take meanwhile is not a decision's
        self._decided_at = self._clock()
        self._decide()
        self._took = time.thread_time() - began

    def _decide_if_requested(self) -> None:
        if self._requested:
            self.decide_now()
