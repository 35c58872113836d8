"""Decides when the state may be written again: soon if a request waits for it, rarely otherwise.

Each write costs the API server work, so in the long run there is about one every `pause` seconds.
But a client that waits for several writes one after the other would wait for as many pauses. So
writes that requests wait for may follow each other quickly until a budget, a token bucket, is used
up; it fills up again with time.

The reports of a training use up such a budget all the time. At a change of the world all processes
wait for a few writes, one after the other, while nobody trains. So urgent requests have a second
budget, which fills up more slowly: with both there are at most six writes in five pauses.
"""

from __future__ import annotations

import math

LEAST_SECONDS = 0.02
"""The least time between two writes, so that simultaneous changes are stored together."""
_SHARE_OF_TIME = 0.1
"""The share of the master's CPU time that snapshots may take, however large the state is."""
_SHARE_OF_UNWAITED = 0.02
"""The same for snapshots that no request waits for."""
LONGEST_UNWAITED_SECONDS = 5.0
"""The most time that this share delays a write."""
_URGENT_PAUSES = 5
"""The pauses in which the budget of urgent requests gains one write."""


class WriteBudget:
    """Decides the times of the writes. `now` is the time of any monotonic clock."""

    def __init__(self, *, pause: float, burst: float) -> None:
        """Begin with full budgets.

        Args:
            pause: the seconds between two writes that no request waits for. The usual budget gains
                one write in that time.
            burst: the quick writes in a full budget; `inf`: writes that requests wait for are not
                limited.
        """
        self._pause = pause
        self._usual = _Bucket(burst=burst, pause=pause)
        self._urgent = _Bucket(burst=burst, pause=_URGENT_PAUSES * pause)
        self._next = 0.0
        """The earliest time of any write."""
        self._next_unwaited = 0.0
        """The earliest time of a write that no request waits for."""

    def record_write(self, now: float, *, snapshot_seconds: float) -> None:
        """Record a write, and the CPU time of taking its snapshot."""
        early = now < min(self._next_unwaited, self._usual.next)
        (self._urgent if early else self._usual).take(now)
        self._next = now + max(LEAST_SECONDS, (1 / _SHARE_OF_TIME - 1) * snapshot_seconds)
        pause = min(snapshot_seconds / _SHARE_OF_UNWAITED, LONGEST_UNWAITED_SECONDS)
        self._next_unwaited = now + max(self._pause, pause)

    def seconds_until_write(self, now: float, *, waited_for: bool, urgent: bool = False) -> float:
        """Return the seconds until the next write may begin.

        Args:
            now: the time.
            waited_for: a request waits for it.
            urgent: an urgent request waits for it.
        """
        due = self._next_unwaited
        if waited_for or urgent:
            due = min(due, self._usual.next)
        if urgent:
            due = min(due, self._urgent.next)
        return max(0.0, due - now, self._next - now)


class _Bucket:
    """A token bucket.

    Attributes:
        next: the earliest time of the next write.
    """

    def __init__(self, *, burst: float, pause: float) -> None:
        self._burst = burst
        self._pause = pause
        self._full = 0.0
        """When it will be full again."""
        self.next = -math.inf

    def take(self, now: float) -> None:
        """Take a token for a write."""
        self._full = max(self._full, now) + self._pause
        self.next = self._full - (self._burst - 1) * self._pause
