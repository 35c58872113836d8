"""What the size of a job is chosen for.

How much a further member must add, and which rate is enough. Every objective is a question to a
size: how much must one more member add? For `Efficiency` that is what the job says. For
`Throughput` it is anything that can be measured. For `Cost` it is the part of the job's price that
a member is. For `Deadline` it is anything, too, but only up to the rate that makes the finish time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["Efficiency", "Throughput", "Deadline", "Cost"]
_NOTICEABLE = 0.05
"""What a further member must add where throughput is all that counts: less cannot be told from
nothing.
"""
_AS_FAST = 0.02
"""There, a measured size is as good as another one with so much more throughput, and the smaller
one is better.
"""
_AS_CHEAP = 0.98
"""A further member may add so little of its part of the price: what costs nearly the same, and is
faster, is better.
"""
_RESERVE = 0.08
"""So much more than the rate that makes the finish time is wanted, beside the noise: a restart, a
slower hour.
"""
_ABOUT = 0.05
"""An elasticity that is lower than `Efficiency` asks for by so little is as good."""


@dataclass(frozen=True)
class Rest:
    """What is left of the training, as it was at a moment.

    Attributes:
        samples: those of the steps that are left.
        wall: the moment, in seconds since the epoch.
        lost: seconds in which the training will stand, as rescales cost time.
        noise: standard deviation of the rate of a window, relative to it.
    """

    samples: float
    wall: float
    lost: float = 0.0
    noise: float = 0.0


@dataclass(frozen=True)
class Objective:
    """The objective, with all that it needs to judge a size.

    Attributes:
        kind: see the API's `autoscaling.objective.type`.
        efficiency: of `Efficiency`, the least throughput that a further member must add, relative to the average one.
        price: of `Cost`, of one member of the scaled role an hour.
        others: of `Cost`, of all other members together an hour.
        finish_at: of `Deadline`, in seconds since the epoch.
        rest: of `Deadline`; None: the training does not say how long it is.
    """

    kind: Kind = "Efficiency"
    efficiency: float = 0.5
    price: float = 1.0
    others: float = 0.0
    finish_at: float = 0.0
    rest: Rest | None = None

    @property
    def by_efficiency(self) -> bool:
        """Whether efficiency decides.

        Also where there is a finish time, and nobody knows how far away the end is.
        """
        return self.kind == "Efficiency" or (self.kind == "Deadline" and self.rest is None)

    @property
    def key(self) -> str:
        """What identifies it: when that is another one, the size is to be chosen again."""
        if self.kind == "Deadline":
            return f"Deadline {self.finish_at:.0f}{'' if self.rest else ', the end is not known'}"
        number = {"Efficiency": self.efficiency, "Cost": self.others / self.price}.get(self.kind)
        return self.kind if number is None else f"{self.kind} {number:g}"

    @property
    def tolerance(self) -> float:
        """By how much an elasticity may be below `threshold` and is as good."""
        return _ABOUT if self.by_efficiency else 0.0

    @property
    def tie(self) -> float:
        """By how much the worth of a smaller size may be less, and it is better."""
        return (
            _AS_FAST if self.kind in ("Throughput", "Deadline") and not self.by_efficiency else 0.0
        )

    def threshold(self, size: float) -> float:
        """Return what a further member of this size must add, relative to the throughput of the average member."""
        if self.by_efficiency:
            return self.efficiency
        return (
            _AS_CHEAP * size * self.price / self._price(size)
            if self.kind == "Cost"
            else _NOTICEABLE
        )

    def worth(self, rate: float, size: int) -> float:
        """Return the worth of a size.

        Where every member adds less, the last that meets `threshold` has most.
        """
        if self.by_efficiency:
            return math.log(rate) - self.efficiency * math.log(size)
        if self.kind == "Cost":
            return math.log(rate) - _AS_CHEAP * math.log(self._price(size))
        return math.log(rate if self.enough is None else min(rate, self.enough))

    @property
    def needed(self) -> float | None:
        """Samples per second that make the finish time; None: there is none, or it is not known."""
        if self.kind != "Deadline" or self.rest is None:
            return None
        return max(1.0, self.rest.samples) / max(
            1.0, self.finish_at - self.rest.wall - self.rest.lost
        )

    @property
    def enough(self) -> float | None:
        """Samples per second beyond which nothing is gained; None: more is always better."""
        if self.needed is None or self.rest is None:
            return None
        return self.needed * (1 + _RESERVE + self.rest.noise)

    def cost(self, rate: float, size: int) -> float:
        """Return what a million samples cost."""
        return self._price(size) / 3600 / rate * 1e6

    def end(self, rate: float) -> float | None:
        """Return when the training ends at this rate, in seconds since the epoch.

        None: not known, or not asked for.
        """
        if self.kind != "Deadline" or self.rest is None or rate <= 0:
            return None
        return self.rest.wall + self.rest.lost + self.rest.samples / rate

    def _price(self, size: float) -> float:
        return self.others + size * self.price
