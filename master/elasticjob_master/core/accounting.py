"""Counts what a job spends time and resources on, over all its masters, to compute its goodput.

Time counts for the job's present activity. The time without a master is classified afterwards: if
the same world still trains when all its members have reconnected, it has trained all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

Activity = Literal["waiting", "starting", "training", "stalled", "suspended", "finished"]
"""waiting: no world exists. starting: the world has not finished a step yet. stalled: the training
hangs. suspended: by the user. finished: nothing is left to train.
"""
SPENT = ("waiting", "starting", "training", "stalled", "without_master", "suspended")
"""What time is spent on before the end, in the order in which samples of the history have it."""
MEASURE_SECONDS = 5.0
"""The time between two sums over the members, of which there may be thousands."""
_LONGEST_GAP_SECONDS = 10 * 365 * 86_400.0
"""A longer time without a master means that a clock was wrong."""


class Resources(NamedTuple):
    """Members, CPU cores that they use, GPUs that they have, and their cost; or seconds of each.

    The cost is that of an hour: a measurement counts at the prices and requests of its time.
    """

    members: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0
    cost: float = 0.0


class StoredAccounting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The account from which a later master continues.

    Attributes:
        began: when the first master started, in seconds since the epoch.
        until: the time up to which everything is counted, in seconds since the epoch.
        activity: the activity at that time.
        seconds: the seconds of each activity, and of `without_master`.
        held: seconds of members, of CPU cores, and of GPUs.
        cost: the cost, as seconds of what an hour costs.
    """

    began: float = 0.0
    until: float = 0.0
    activity: Activity = "waiting"
    round: int = 0
    seconds: dict[str, float] = {}
    held: tuple[float, float, float] = (0.0, 0.0, 0.0)
    cost: float = 0.0
    worlds: int = 0


@dataclass(frozen=True)
class Moment:
    """What the job does at one moment.

    Attributes:
        round: the round of the present world, or of the last one.
        complete: all members have reconnected since the master's start.
        stalled_since: since when the training is stalled, in seconds since the epoch; None if it is
            not.
    """

    activity: Activity
    round: int = 0
    complete: bool = True
    stalled_since: float | None = None


class Accounting:
    """The account of one job.

    Attributes:
        began: when the first master started, in seconds since the epoch.
        worlds: the number of worlds that were formed.
    """

    def __init__(self) -> None:
        self.began = 0.0
        self.worlds = 0
        self._seconds: dict[str, float] = {}
        self._resource_seconds = Resources()
        """The seconds of each resource, up to the last measurement."""
        self._resources = Resources()
        """The last measurement."""
        self._last = Moment("waiting")
        self._last_now: float | None = None
        self._last_wall = 0.0
        self._uninterrupted = 0.0
        """Seconds of training without a pause until now."""
        self._unmeasured = 0.0
        """Seconds since the last measurement."""
        self._unclassified: float | None = None
        """Seconds without a master, and since, of which it is not known yet whether the world has
        trained; None if all time is classified.
        """
        self._restored: StoredAccounting | None = None

    def advance(
        self, now: float, wall: float, moment: Moment, measure: Callable[[], Resources]
    ) -> None:
        """Count the time since the last call for what the job did during it.

        `measure` returns the job's present resources; it is called every few seconds.
        """
        if self._last_now is None:
            self._begin(wall, measure)
        else:
            self._count(max(0.0, now - self._last_now), moment, wall)
        self.worlds += moment.round > self._last.round
        changed = moment.activity != self._last.activity
        if moment.activity == "training":
            self._seconds.setdefault("training", 0.0)
        self._last = moment
        self._last_now = now
        self._last_wall = wall
        if self._unclassified is None and (self._unmeasured >= MEASURE_SECONDS or changed):
            self._record(measure())

    def seconds(self, of: str) -> float:
        """Return the seconds of an activity, or of `without_master`."""
        counted = self._seconds.get(of, 0.0)
        if of == "training" and self._unclassified is not None:
            return counted + self._unclassified
        return counted

    def spent(self) -> tuple[float, ...]:
        """Return the seconds of each of `SPENT`."""
        return tuple(round(self.seconds(each), 1) for each in SPENT)

    @property
    def total_seconds(self) -> float:
        """The time of the job without the time when it was suspended or finished."""
        return sum(self.seconds(each) for each in SPENT if each != "suspended")

    @property
    def goodput(self) -> float | None:
        """The share of the time that was training; None before the first reported step."""
        if "training" not in self._seconds or not self.total_seconds:
            return None
        return self.seconds("training") / self.total_seconds

    @property
    def hours(self) -> Resources:
        """Hours of members, of CPU cores used, and of GPUs; and the cost of all until now."""
        return Resources(*(seconds / 3600 for seconds in self._resource_seconds_now()))

    def stored(self) -> StoredAccounting:
        """Return the account to store: the restored one until all time is classified."""
        if self._restored is not None and (
            self._last_now is None or self._unclassified is not None
        ):
            return self._restored
        *held, cost = self._resource_seconds_now()
        return StoredAccounting(
            began=self.began,
            until=self._last_wall,
            activity=self._last.activity,
            round=self._last.round,
            seconds={what: round(each, 3) for what, each in self._seconds.items()},
            held=(held[0], held[1], held[2]),
            cost=cost,
            worlds=self.worlds,
        )

    def restore(self, stored: StoredAccounting) -> None:
        """Continue from the account of an earlier master."""
        self.began = stored.began
        self.worlds = stored.worlds
        self._seconds = dict(stored.seconds)
        self._resource_seconds = Resources(*stored.held, stored.cost)
        self._last = Moment(stored.activity, stored.round)
        self._restored = stored if stored.until else None

    def _begin(self, wall: float, measure: Callable[[], Resources]) -> None:
        """Count the time without a master, if it can be classified already."""
        self.began = self.began or wall
        if self._restored is None:
            return
        gap = max(0.0, wall - self._restored.until)
        if gap > _LONGEST_GAP_SECONDS:
            return
        activity = self._restored.activity
        if activity not in ("suspended", "finished"):
            self._unmeasured = gap
        if activity == "training":
            self._unclassified = gap
            return
        if activity in ("waiting", "suspended", "finished"):
            self._add(activity, gap)
        else:
            self._add("without_master", gap)
        self._record(measure())

    def _count(self, passed: float, moment: Moment, wall: float) -> None:
        self._unmeasured += passed
        if self._unclassified is not None:
            self._unclassified += passed
            if moment.activity != "training" or moment.round != self._last.round:
                self._add("without_master", self._unclassified)
                self._unclassified = None
            elif moment.complete:
                self._add("training", self._unclassified)
                self._unclassified = None
            return
        self._add(self._last.activity, passed)
        if self._last.activity == "training":
            self._uninterrupted += passed
        if moment.activity == "stalled" and moment.stalled_since is not None:
            hung = min(max(0.0, wall - moment.stalled_since), self._uninterrupted)
            self._add("training", -hung)
            self._add("stalled", hung)
        if moment.activity != "training":
            self._uninterrupted = 0.0

    def _add(self, what: str, seconds: float) -> None:
        self._seconds[what] = max(0.0, self._seconds.get(what, 0.0) + seconds)

    def _record(self, resources: Resources) -> None:
        """Record a measurement, which counts for the time since the last one."""
        self._resources = resources
        self._resource_seconds = self._resource_seconds_now()
        self._unmeasured = 0.0

    def _resource_seconds_now(self) -> Resources:
        """Return the seconds of each resource until now, by the last measurement."""
        pairs = zip(self._resource_seconds, self._resources, strict=True)
        return Resources(*(total + self._unmeasured * each for total, each in pairs))
