"""Whether the training hangs: no step for much longer than usual, although all members of the world are there.

Only time in which a step could have been told counts: not while a world changes, not while a member is away, and not
what the master itself stood still. So neither a network cut nor a restart of the master looks like a stall.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TrainingActivity = Literal["training", "paused", "finished"]
"""The world trains and all its members are there; something keeps it from training; there is nothing to train."""

MOST_RESTARTS = 5
_START_UP = 3
"""So many times longer may the first step of a round take: frameworks load and compile before it."""
_LONGEST_TICK = 2.0
_TELLING_SECONDS = 10.0
"""In which members tell a new master what they have done while there was none."""
_WELL = 10


@dataclass(frozen=True)
class StallRule:
    """When training is stalled, and whether that starts it anew: `spec.health`."""

    factor: float = 10.0
    seconds: float = 300.0
    restart: bool = False


@dataclass
class StallDetector:
    """The time since the last step.

    Attributes:
        round: of the world that is watched.
        stepped_at: when the last step was told, in seconds since the epoch; None before the first of the job, for
            which there is nothing to compare with.
        usual: seconds between a member's reports of steps, lately.
        start_up: the longest time to the first step of a round so far.
        since: since when the training is stalled, in seconds since the epoch; None: it is not.
        restarts: made because of stalls, without a long time of training in between.
        restarted_at: when the last of them was made, in seconds since the epoch.
        idle: seconds without a step that count.
        first: no step of this round has been told yet.
    """

    round: int = 0
    stepped_at: float | None = None
    usual: float = 0.0
    start_up: float = 0.0
    since: float | None = None
    restarts: int = 0
    restarted_at: float = 0.0
    idle: float = 0.0
    first: bool = True
    _watched: float = 0.0
    _ticked_at: float | None = field(default=None, repr=False)

    def step_finished(self, seconds: float, wall: float, *, process_round: int) -> bool:
        """Take a report of steps that stands for so many seconds; return whether that ends a stall."""
        self._enter(process_round)
        if self.first:
            self.start_up = max(self.start_up, self.idle)
        elif self.usual:
            self.usual += 0.1 * (min(seconds, 4 * self.usual) - self.usual)  # a pause is not what is usual
        else:
            self.usual = seconds
        ended = self.since is not None
        self.stepped_at, self.since, self.idle, self.first = wall, None, 0.0, False
        return ended

    def limit(self, rule: StallRule) -> float:
        """Return the seconds without a step after which the training is stalled."""
        longest = max(rule.factor * self.usual, rule.seconds)
        return _START_UP * max(longest, self.start_up) if self.first else longest

    def advance(
        self, now: float, wall: float, *, activity: TrainingActivity, process_round: int, rule: StallRule
    ) -> bool:
        """Let time pass; return whether the training is to be started anew now.

        Args:
            now: the clock of the decisions.
            wall: seconds since the epoch.
            activity: whether a step could be told.
            process_round: of the present world.
            rule: what the job says.
        """
        passed = 0.0 if self._ticked_at is None else min(now - self._ticked_at, _LONGEST_TICK)
        self._ticked_at = now
        self._enter(process_round)
        if activity == "finished":
            self.since, self.idle = None, 0.0
        if activity != "training":
            return False
        self.idle += passed
        self._watched += passed
        limit = self.limit(rule)
        if self.stepped_at is None or self.idle <= limit or self._watched < _TELLING_SECONDS:
            if self.restarts and self.since is None and wall - self.restarted_at > _WELL * limit:
                self.restarts = 0
            return False
        if self.since is None:
            self.since = self.stepped_at
        if not rule.restart or self.restarts >= MOST_RESTARTS or self.idle <= limit * 2**self.restarts:
            return False
        self.restarts += 1
        self.restarted_at, self.idle = wall, 0.0
        return True

    def _enter(self, process_round: int) -> None:
        if process_round != self.round:
            self.round, self.idle, self.first = process_round, 0.0, True

    def restore(self, wall: float, *, stepped_in_round: bool) -> None:
        """Go on after a restart of the master, with what was stored."""
        self.first = not stepped_in_round
        if stepped_in_round and self.stepped_at is not None:
            self.idle = max(0.0, wall - self.stepped_at)
