"""What a job's time and resources were spent on, over all its masters: the source of its goodput.

Time is counted for what the job does at the moment. What it did while no master ran is found out
afterwards: if the world of before still trains when all its members are back, it has trained all
the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

Activity = Literal["waiting", "starting", "training", "stalled", "suspended", "finished"]
"""No world; a world without a finished step; one that trains; one that hangs; the user's will;
nothing to train.
"""
MEASURE_SECONDS = 5.0
"""Between two looks at what the members use, of which there may be thousands."""
_LONGEST_GAP = 10 * 365 * 86_400.0
"""Seconds: a longer time without a master is a wrong clock."""


class Held(NamedTuple):
    """What the job has at the moment: members, the CPU cores they use, and the GPUs they have."""

    members: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0


class StoredAccounting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a later master goes on from.

    Attributes:
        began: when the first master began, in seconds since the epoch.
        until: up to when everything is counted, in seconds since the epoch.
        activity: at that time.
        round: of the world at that time.
        seconds: by activity, and `without_master`.
        held: seconds of members, of CPU cores, and of GPUs.
        worlds: that were formed.
    """

    began: float = 0.0
    until: float = 0.0
    activity: Activity = "waiting"
    round: int = 0
    seconds: dict[str, float] = {}
    held: Held = Held()
    worlds: int = 0


@dataclass(frozen=True)
class Moment:
    """What the job does at a moment.

    Attributes:
        activity: see there.
        round: of the present world, or the last one.
        complete: no member is waited for, as after a restart of the master.
        stalled_since: since when it is stalled, in seconds since the epoch; None: it is not.
    """

    activity: Activity
    round: int = 0
    complete: bool = True
    stalled_since: float | None = None


class Accounting:
    """The account of one job.

    Attributes:
        began: when the first master began, in seconds since the epoch.
        worlds: that were formed.
    """

    def __init__(self) -> None:
        self.began = 0.0
        self.worlds = 0
        self._seconds: dict[str, float] = {}
        self._held = Held()
        """Seconds of each."""
        self._holds = Held()
        """What was held when it was last measured."""
        self._last = Moment("waiting")
        self._last_now: float | None = None
        self._last_wall = 0.0
        self._stretch = 0.0
        """Seconds of training without a pause until now."""
        self._unmeasured = 0.0
        """Seconds in which something was held that is not counted yet."""
        self._gap: float | None = None
        """Seconds of which it is not known yet whether the world has trained: those without a
        master, and since.
        """
        self._restored: StoredAccounting | None = None

    def advance(self, now: float, wall: float, moment: Moment, held: Callable[[], Held]) -> None:
        """Count the time since the last call for what the job did then.

        Args:
            now: the time of the monotonic clock.
            wall: the time in seconds since the epoch.
            moment: what the job does now.
            held: is called when it is time to measure what the job has.
        """
        if self._last_now is None:
            self._begin(wall, held)
        else:
            self._count(max(0.0, now - self._last_now), moment, wall)
        self.worlds += moment.round > self._last.round
        changes = moment.activity != self._last.activity
        if moment.activity == "training":
            self._seconds.setdefault("training", 0.0)
        self._last = moment
        self._last_now = now
        self._last_wall = wall
        if self._gap is None and (self._unmeasured >= MEASURE_SECONDS or changes):
            self._measure(held())

    def seconds(self, of: str) -> float:
        """Return the seconds that were spent on something: an activity, or `without_master`."""
        counted = self._seconds.get(of, 0.0)
        return counted + (self._gap or 0.0) if of == "training" else counted

    @property
    def total_seconds(self) -> float:
        """The time that counts: not while suspended, and none after the end."""
        spent = ("waiting", "starting", "training", "stalled", "without_master")
        return sum(map(self.seconds, spent))

    @property
    def goodput(self) -> float | None:
        """The part of the time that was training; None: no step was ever reported."""
        if "training" not in self._seconds or not self.total_seconds:
            return None
        return self.seconds("training") / self.total_seconds

    @property
    def hours(self) -> Held:
        """Hours of members, of CPUs used, and of GPUs."""
        return Held(*(seconds / 3600 for seconds in self._held_so_far(self._holds)))

    def stored(self) -> StoredAccounting:
        """Return what is to be stored.

        Nothing new as long as it is not known what an earlier gap was.
        """
        if self._restored is not None and (self._last_now is None or self._gap is not None):
            return self._restored
        return StoredAccounting(
            began=self.began,
            until=self._last_wall,
            activity=self._last.activity,
            round=self._last.round,
            seconds={what: round(each, 3) for what, each in self._seconds.items()},
            held=self._held_so_far(self._holds),
            worlds=self.worlds,
        )

    def restore(self, stored: StoredAccounting) -> None:
        """Go on from what an earlier master has counted."""
        self.began = stored.began
        self.worlds = stored.worlds
        self._seconds = dict(stored.seconds)
        self._held = stored.held
        self._last = Moment(stored.activity, stored.round)
        self._restored = stored if stored.until else None

    def _begin(self, wall: float, held: Callable[[], Held]) -> None:
        """Count the time without a master, as far as it is known what it was."""
        self.began = self.began or wall
        if self._restored is None:
            return
        gap = max(0.0, wall - self._restored.until)
        if gap > _LONGEST_GAP:
            return
        self._unmeasured = gap if self._restored.activity not in ("suspended", "finished") else 0.0
        if self._restored.activity == "training":
            self._gap = gap
        elif self._restored.activity in ("waiting", "suspended", "finished"):
            self._add(self._restored.activity, gap)
        else:
            self._add("without_master", gap)
        if self._gap is None:
            self._measure(held())

    def _count(self, passed: float, moment: Moment, wall: float) -> None:
        self._unmeasured += passed
        if self._gap is not None:
            self._gap += passed
            if moment.activity != "training" or moment.round != self._last.round:
                self._add("without_master", self._gap)
                self._gap = None
            elif moment.complete:
                self._add("training", self._gap)
                self._gap = None
            return
        self._add(self._last.activity, passed)
        if self._last.activity == "training":
            self._stretch += passed
        if moment.activity == "stalled" and moment.stalled_since is not None:
            hung = min(max(0.0, wall - moment.stalled_since), self._stretch)
            self._add("training", -hung)
            self._add("stalled", hung)
        if moment.activity != "training":
            self._stretch = 0.0

    def _add(self, what: str, seconds: float) -> None:
        self._seconds[what] = max(0.0, self._seconds.get(what, 0.0) + seconds)

    def _measure(self, holds: Held) -> None:
        self._held = self._held_so_far(holds)
        self._holds = holds
        self._unmeasured = 0.0

    def _held_so_far(self, holds: Held) -> Held:
        """Return the seconds until now, if this was held since they were last counted."""
        return Held(
            *(
                total + self._unmeasured * each
                for total, each in zip(self._held, holds, strict=True)
            )
        )
