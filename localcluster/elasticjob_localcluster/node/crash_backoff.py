"""The back-off of a crashed container: how long it waits before it is restarted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST = 10.0
_LONGEST = 300.0
_RESET_AFTER = 600.0


@dataclass
class CrashLoopBackoff:
    """The kubelet's rule: at once the first time, then 10 s, doubling to 300 s.

    Reset after ten minutes of running.
    """

    delay: float = 0.0
    until: float = 0.0
    _next: float = 0.0

    def record_exit(self, now: float, *, ran_for: float) -> None:
        """Record that the container has ended at `now`, after running for `ran_for` seconds."""
        if ran_for > _RESET_AFTER:
            self._next = 0.0
        self.delay = self._next
        self.until = now + self.delay
        self._next = min(self._next * 2, _LONGEST) or _FIRST
