"""The objectives by which the size of a job is chosen.

Every objective is a utility of a rate and a size: the logarithm of the rate, less a price of the
members, up to the rate that is enough. `Efficiency` names the price: how much a further member must
add. For `Throughput` it is nearly nothing, and for `Cost` it is what all members cost. `Deadline`
is like `Throughput`, up to the rate that meets the finish time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from elasticjob_api.times import format_time

from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

Kind = Literal["Efficiency", "Throughput", "Deadline", "Cost"]

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0
_END_OF_YEAR_9999 = 253402300799.0


@dataclass(frozen=True)
class Rest:
    """The training that remains.

    Attributes:
        samples: the samples of the remaining steps.
        wall: the time of this figure, in seconds since the epoch.
        lost: seconds in which the training will stand, because rescales cost time.
        noise: the standard deviation of the rate of a window, relative to it.
    """

    samples: float
    wall: float
    lost: float = 0.0
    noise: float = 0.0


@dataclass(frozen=True)
class Objective:
    """The objective, with everything that is needed to judge a size.

    Attributes:
        kind: see the API's `autoscaling.objective.type`.
        efficiency: for `Efficiency`, the least that a member must add, relative to an average one.
        price: for `Cost`, the price of one member of the scaled role for an hour.
        others: for `Cost`, the price of all other members for an hour.
        finish_at: for `Deadline`, in seconds since the epoch.
        rest: for `Deadline`; None if the training does not report its length.
    """

    kind: Kind = "Efficiency"
    efficiency: float = 0.5
    price: float = 1.0
    others: float = 0.0
    finish_at: float = 0.0
    rest: Rest | None = None

    @property
    def by_efficiency(self) -> bool:
        """True if efficiency decides, also for a finish time without a known length."""
        return self.kind == "Efficiency" or (self.kind == "Deadline" and self.rest is None)

    @property
    def key(self) -> str:
        """Identifies the objective; if it changes, the size is chosen again."""
        if self.kind == "Deadline":
            key = f"Deadline {self.finish_at:.0f}"
            return key if self.rest else f"{key}, the end is not known"
        if self.kind == "Efficiency":
            return f"Efficiency {self.efficiency:g}"
        if self.kind == "Cost":
            return f"Cost {self.others / self.price:g}"
        return self.kind

    @property
    def exact(self) -> Objective:
        """Return the objective without the tolerance with which `worth` takes `efficiency`."""
        return replace(self, efficiency=self.efficiency + THRESHOLDS.noticeable)

    def worth(self, rate: float, size: int) -> float:
        """Return the worth of a size, a logarithm: 0.01 more is worth 1 % more samples."""
        return self.worths([math.log(rate)], size)[0]

    def worths(self, log_rates: Sequence[float], size: int) -> list[float]:
        """Return the worth of a size for each of several logarithms of its rate."""
        price = self._log_price(size)
        if self.enough is None:
            return [each - price for each in log_rates]
        most = math.log(self.enough)
        return [min(each, most) - price for each in log_rates]

    def _log_price(self, size: int) -> float:
        """Return what the members cost: the part of it that one more must add to be worth it."""
        if self.by_efficiency:
            return (self.efficiency - THRESHOLDS.noticeable) * math.log(size)
        if self.kind == "Cost":
            return (1 - THRESHOLDS.minor) * math.log(self._price(size))
        least = THRESHOLDS.noticeable if self.enough is None else THRESHOLDS.minor
        return least * math.log(size)

    @property
    def needed(self) -> float | None:
        """Samples per second that meet the finish time; None if there is none, or it is unknown."""
        if self.kind != "Deadline" or self.rest is None:
            return None
        seconds = max(1.0, self.finish_at - self.rest.wall - self.rest.lost)
        return max(1.0, self.rest.samples) / seconds

    @property
    def enough(self) -> float | None:
        """Samples per second beyond which nothing is gained; None if more is always better."""
        if self.needed is None or self.rest is None:
            return None
        return self.needed * (1 + THRESHOLDS.worthwhile + self.rest.noise)

    def cost(self, rate: float, size: int) -> float:
        """Return the price of a million samples."""
        return self._price(size) / 3600 / rate * 1e6

    def end(self, rate: float) -> float | None:
        """Return when the training ends at this rate, in seconds since the epoch, if known."""
        if self.kind != "Deadline" or self.rest is None or rate <= 0:
            return None
        return self.rest.wall + self.rest.lost + self.rest.samples / rate

    def _price(self, size: float) -> float:
        return self.others + size * self.price


def meaning_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: when a size with this rate ends the training, or what its samples cost.

    The text is empty for other objectives.
    """
    if objective.kind == "Cost" and rate > 0:
        return f"{objective.cost(rate, size):.4g} for a million samples"
    end = objective.end(rate)
    if end is None:
        return ""
    early = objective.finish_at - end
    order = "before" if early >= 0 else "after"
    return f"ends {clock_text(end)}, {_duration(abs(early))} {order} finishTime"


def rate_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text with the rate and its meaning in short."""
    text = f"{rate:.1f} samples/s"
    if objective.kind == "Cost" and rate > 0:
        return f"{text} at {meaning_text(objective, rate, size)}"
    end = objective.end(rate)
    return text if end is None else f"{text}, ends {clock_text(end)}"


def objective_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: the objective, and what the present size means for it.

    A rate of 0 is unknown.
    """
    means = meaning_text(objective, rate, size)
    present = f"; {size} members: {means}" if means else ""
    if objective.kind == "Efficiency":
        return f"Efficiency: at least {objective.efficiency:.0%}"
    if objective.kind == "Throughput":
        return "Throughput"
    if objective.kind == "Cost":
        return (
            f"Cost: {objective.price:g} an hour for a member, {objective.others:g} for all of the "
            f"other roles{present}"
        )
    finish = f"Deadline: finishTime {clock_text(objective.finish_at)}"
    if objective.needed is None:
        return (
            f"{finish}; the training reports no total of steps, so it is as Efficiency with "
            f"{objective.efficiency:.0%}"
        )
    if objective.rest is not None and objective.finish_at <= objective.rest.wall:
        return f"{finish} has passed, so it is as Throughput{present}"
    return f"{finish} needs {objective.needed:.1f} samples/s{present}"


def clock_text(seconds: float) -> str:
    """Return a time in the format of `finishTime`, but to the minute."""
    return f"{format_time(min(max(0.0, seconds), _END_OF_YEAR_9999))[:16]}Z"


def _duration(seconds: float) -> str:
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.0f} days"
