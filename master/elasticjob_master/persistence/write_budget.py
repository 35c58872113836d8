"""Decides when the state may be written again: soon if a request waits for it, rarely otherwise.

Each write costs the API server work, so in the long run there is at most one every `pause` seconds.
But a client that waits for several writes one after the other, as the members of a new world do at
their first barriers, would wait for as many pauses. So writes that requests wait for may follow
each other quickly until a budget, a token bucket, is used up; it fills up again with time.
"""

from __future__ import annotations

LEAST_SECONDS = 0.02
"""The least time between two writes, so that simultaneous changes are stored together."""
_SHARE_OF_TIME = 0.1
"""The share of the master's CPU time that snapshots may take, however large the state is."""


class WriteBudget:
    """Decides the times of the writes. `now` is the time of any monotonic clock."""

    def __init__(self, *, pause: float, burst: float) -> None:
        """Begin with a full budget.

        Args:
            pause: the seconds between two writes that no request waits for. The budget gains one
                write in that time.
            burst: the quick writes in a full budget; `inf`: writes that requests wait for are not
                limited.
        """
        self._pause = pause
        self._burst = burst
        self._next = 0.0
        """The earliest time of any write."""
        self._next_unwaited = 0.0
        """The earliest time of a write that no request waits for."""
        self._full = 0.0
        """When the budget will be full again."""

    def record_write(self, now: float, *, snapshot_seconds: float) -> None:
        """Record a write, and the CPU time of taking its snapshot."""
        self._next = now + max(LEAST_SECONDS, (1 / _SHARE_OF_TIME - 1) * snapshot_seconds)
        self._next_unwaited = now + self._pause
        self._full = max(self._full, now) + self._pause

    def seconds_until_write(self, now: float, *, waited_for: bool) -> float:
        """Return the seconds until the next write may begin.

        `waited_for`: a request waits for it.
        """
        due = self._next_unwaited
        if waited_for:
            due = self._full - (self._burst - 1) * self._pause
        return max(0.0, due - now, self._next - now)
