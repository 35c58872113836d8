"""Chooses how many steps lie between two checkpoints, in all ranks equally.

Saving often costs time, and saving rarely makes a failure repeat more steps. With a cost of C
seconds for a checkpoint and M seconds between two failures, both together are least if √(2·C·M)
seconds of training lie between two checkpoints (J. W. Young, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Callable


class CheckpointInterval:
    """Begins with every step, and doubles the number of steps until it is the best one.

    It is at most √2 times too long or too short, while steps and costs remain as they are.
    """

    def __init__(
        self, any_rank: Callable[[bool], bool], *, failure_seconds: float, now: float
    ) -> None:
        """Begin at a time in seconds, with the mean time between two failures of the world."""
        self.steps = 1
        self._any_rank = any_rank
        self._failure_seconds = failure_seconds
        self._count = 0
        self._since = now

    def due(self) -> bool:
        """Count a step; return whether a checkpoint is due after it."""
        self._count += 1
        return self._count >= self.steps

    def saved(self, began: float, ended: float) -> None:
        """Learn from a save, in all ranks; the times are in seconds."""
        best = math.sqrt(2 * (ended - began) * self._failure_seconds)
        if self._any_rank(best > math.sqrt(2) * (began - self._since)):
            self.steps *= 2
        self._count = 0
        self._since = ended
