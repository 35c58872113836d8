"""When the state may be written again: soon while somebody waits for it, seldom otherwise, and never much on average.

What is stored takes an API server's time, so in the long run there is at most one write each `pause` seconds. But who
waits for several writes one after the other, as the members of a new world do at their first barriers, would wait as
many pauses. So writes that are waited for may come quickly until a budget is used up; it fills again with time.
"""

from __future__ import annotations

TOGETHER_SECONDS = 0.02
"""Between two quick writes: what many ask for at the same time is stored together."""
_SHARE_OF_TIME = 0.1
"""That taking a snapshot may have, however large the state is."""


class WriteBudget:
    """The times of the writes. `now` is any clock that does not go back."""

    def __init__(self, *, pause: float, burst: float) -> None:
        """Begin with the whole budget.

        Args:
            pause: seconds between two writes that nobody waits for; after so many the budget has one more.
            burst: quick writes in the budget when it is full; `inf` if only nobody's waiting makes writes seldom.
        """
        self._pause = pause
        self._burst = burst
        self._next = 0.0
        """The earliest time of any write."""
        self._seldom = 0.0
        """The time of a write that nobody waits for."""
        self._full = 0.0
        """When the budget is full again."""

    def record_write(self, now: float, *, snapshot_seconds: float) -> None:
        """Note a write, and what taking the snapshot for it took."""
        self._next = now + max(TOGETHER_SECONDS, (1 / _SHARE_OF_TIME - 1) * snapshot_seconds)
        self._seldom = now + self._pause
        self._full = max(self._full, now) + self._pause

    def seconds_until_write(self, now: float, *, waited_for: bool) -> float:
        """Return the seconds until the next write; 0: now."""
        due = self._full - (self._burst - 1) * self._pause if waited_for else self._seldom
        return max(0.0, due - now, self._next - now)
