"""Detects that the training hangs.

The training is stalled if no step was finished for much longer than usual although all members of
the world are connected. Time counts only while a step could have been reported: not while the world
changes, while a member is disconnected, or while the master does not run. So neither a network
failure nor a restart of the master looks like a stall.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec
from elasticjob_api.health import Health

TrainingActivity = Literal["training", "paused", "finished"]
"""training: the world trains with all its members. paused: it cannot train at the moment. finished:
there is nothing left to train.
"""

MOST_RESTARTS = 5
_START_UP = 3
"""The first step of a round may take longer by this factor, as frameworks compile before it."""
_LONGEST_ADVANCE_SECONDS = 2.0
_CATCH_UP_SECONDS = 10.0
"""The time that members have to report their steps to a restarted master."""
_RECOVERED_FACTOR = 10
"""After this multiple of the limit without a stall, earlier restarts do not count any more."""


@dataclass(frozen=True)
class StallRule:
    """When training counts as stalled, and whether it is restarted, from `spec.health`."""

    factor: float = Health().stall_factor
    seconds: float = Health().stall_seconds
    restart: bool = False


class StoredStall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored part of the stall detector."""

    stepped_at: float | None = None
    usual: float = 0.0
    start_up: float = 0.0
    since: float | None = None
    restarts: int = 0
    restarted_at: float = 0.0


@dataclass
class StallDetector:
    """Measures the time since the last step.

    Attributes:
        round: the round of the present world.
        stepped_at: when the last step was reported, in seconds since the epoch; None: the job has
            not finished one, and so it cannot stall.
        usual: the recent average of the seconds between a member's step reports.
        start_up: the longest time to the first step of a round so far, in seconds.
        since: since when the training is stalled, in seconds since the epoch; None: it is not
            stalled.
        restarts: the number of restarts because of stalls since the last long time of training.
        restarted_at: when the last of them happened, in seconds since the epoch.
        idle: the seconds without a step that count.
        first: no step of this round has been reported yet.
        overdue: this round is stalled: it has no step for longer than the limit.
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
    overdue: bool = False
    _observed_seconds: float = 0.0
    _stepped: bool = False
    _advanced_at: float | None = field(default=None, repr=False)

    def step_finished(self, seconds: float, wall: float, *, process_round: int) -> bool:
        """Record a step report that covers these seconds; return whether it ends a stall."""
        self._set_round(process_round)
        if self.first:
            self.start_up = max(self.start_up, self.idle)
        elif self.usual:
            bounded = min(seconds, 4 * self.usual)  # it may contain a pause
            self.usual += 0.1 * (bounded - self.usual)
        else:
            self.usual = seconds
        ended = self.since is not None
        self.stepped_at = wall
        self.since = None
        self.idle = 0.0
        self.first = False
        self.overdue = False
        self._stepped = True
        return ended

    def limit(self, rule: StallRule) -> float:
        """Return the seconds without a step after which the training is stalled."""
        longest = max(rule.factor * self.usual, rule.seconds)
        if self.first:
            return _START_UP * max(longest, self.start_up)
        return longest

    def advance(
        self,
        now: float,
        wall: float,
        *,
        activity: TrainingActivity,
        process_round: int,
        rule: StallRule,
    ) -> bool:
        """Count the time since the last call; return whether the training must be restarted now."""
        passed = 0.0
        if self._advanced_at is not None:
            passed = min(now - self._advanced_at, _LONGEST_ADVANCE_SECONDS)
        self._advanced_at = now
        self._set_round(process_round)
        if activity == "finished":
            self.since = None
            self.idle = 0.0
            self.overdue = False
        if activity != "training":
            return False
        if self._stepped and self.stepped_at is not None:
            # The time before the step does not count.
            self.idle += min(passed, max(0.0, wall - self.stepped_at))
        else:
            self.idle += passed
        self._stepped = False
        self._observed_seconds += passed
        limit = self.limit(rule)
        self.overdue = self._exceeds(limit)
        if not self.overdue:
            recovered = wall - self.restarted_at > _RECOVERED_FACTOR * limit
            if self.since is None and recovered:
                self.restarts = 0
            return False
        if self.since is None:
            self.since = self.stepped_at
        if not rule.restart or self.restarts >= MOST_RESTARTS:
            return False
        if self.idle <= limit * 2**self.restarts:
            return False
        self.restarts += 1
        self.restarted_at = wall
        self.idle = 0.0
        return True

    def _exceeds(self, limit: float) -> bool:
        if self.stepped_at is None or self._observed_seconds < _CATCH_UP_SECONDS:
            return False
        return self.idle > limit

    def _set_round(self, process_round: int) -> None:
        if process_round != self.round:
            self.round = process_round
            self.idle = 0.0
            self.first = True
            self.overdue = False

    def stored(self) -> StoredStall:
        """Return the fields to store."""
        return msgspec.convert(self, StoredStall, from_attributes=True)

    def restore(
        self, stored: StoredStall, *, process_round: int, stepped_in_round: bool, wall: float
    ) -> None:
        """Continue with the fields that an earlier master stored.

        `stepped_in_round`: the last world, of the round `process_round`, has reported a step.
        """
        self.round = process_round
        self.stepped_at = stored.stepped_at
        self.usual = stored.usual
        self.start_up = stored.start_up
        self.since = stored.since
        self.restarts = stored.restarts
        self.restarted_at = stored.restarted_at
        self.first = not stepped_in_round
        if stepped_in_round and self.stepped_at is not None:
            self.idle = max(0.0, wall - self.stepped_at)
