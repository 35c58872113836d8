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

from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

Kind = Literal["Efficiency", "Throughput", "Deadline", "Cost"]


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
        """Return the worth of a size, a logarithm: 0.01 more is worth as much as 1 % more samples."""
        return self.worths([math.log(rate)], size)[0]

    def worths(self, log_rates: Sequence[float], size: int) -> list[float]:
        """Return the worth of a size for each of several logarithms of its rate."""
        price = self._log_price(size)
        if self.enough is None:
            return [each - price for each in log_rates]
        most = math.log(self.enough)
        return [min(each, most) - price for each in log_rates]

    def _log_price(self, size: int) -> float:
        """Return what the members cost: the part of it that a further one must add to be worth it."""
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
        """Return when the training ends at this rate, in seconds since the epoch; None if unknown."""
        if self.kind != "Deadline" or self.rest is None or rate <= 0:
            return None
        return self.rest.wall + self.rest.lost + self.rest.samples / rate

    def _price(self, size: float) -> float:
        return self.others + size * self.price
