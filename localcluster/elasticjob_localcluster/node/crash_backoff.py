"""How long a crashed container waits before it is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST, _LONGEST = 10.0, 300.0
_FORGIVEN_AFTER = 600.0


@dataclass
class CrashLoopBackoff:
    """The kubelet's: at once the first time, then 10 s, doubling to 300 s; forgotten after ten minutes of running."""

    delay: float = 0.0
    until: float = 0.0
    _next: float = 0.0

    def record_exit(self, now: float, *, ran_for: float) -> None:
        """Take note that the container has ended, having ran_for for some seconds."""
        if ran_for > _FORGIVEN_AFTER:
            self._next = 0.0
        self.delay = self._next
        self.until = now + self.delay
        self._next = min(self._next * 2, _LONGEST) or _FIRST
