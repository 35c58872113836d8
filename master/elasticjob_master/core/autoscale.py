"""How many members the job should have, by what was measured.

The rule: double while the members added last still pull their weight, else go back to the last size that did, and stay.
The weight is the marginal efficiency: what one further member added to the throughput, as a part of what a member of
the smaller size contributes. After going back the size is settled, so there is at most one reversal; only somebody
else's change of the size opens the question again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_WARM_UP = 0.2
"""The part of a held size that is not measured: compilation and first steps."""


@dataclass(frozen=True)
class Bounds:
    """Sizes the auto-scaler may ask for; `limit` tells what sets the upper one."""

    minimum: int
    maximum: int
    limit: str = "maxReplicas"


@dataclass(frozen=True)
class Memory:
    """What is remembered over worlds and restarts.

    Attributes:
        rates: samples a second by size, as measured last.
        settled: no growth beyond this size; None while the best size is still looked for.
        asked: the size the auto-scaler asked for last.
    """

    rates: Mapping[int, float] = field(default_factory=dict)
    settled: int | None = None
    asked: int | None = None


@dataclass(frozen=True)
class Decision:
    """A size and why; `size` None means: stay."""

    size: int | None
    reason: str
    memory: Memory


@dataclass
class Window:
    """One size being held: from the first step of a world on, until anything changes."""

    size: int = 0
    round: int = 0
    held_from: float | None = None
    measured_from: float | None = None
    samples_from: float = 0.0

    def restart(self) -> None:
        """Something changed: what was measured so far is no longer one size."""
        self.held_from = self.measured_from = None

    def observe(self, *, size: int, world_round: int, samples: float, cooldown: float, now: float) -> float | None:
        """Go on measuring; return samples a second once the size has been held for `cooldown`, else None.

        Call it only while the whole world trains; `samples` counts from any beginning.
        """
        if self.held_from is None or (size, world_round) != (self.size, self.round):
            self.size, self.round, self.held_from, self.measured_from = size, world_round, now, None
        if self.measured_from is None and now - self.held_from >= _WARM_UP * cooldown:
            self.measured_from, self.samples_from = now, samples
        if self.measured_from is None or now - self.held_from < cooldown or now <= self.measured_from:
            return None
        return (samples - self.samples_from) / (now - self.measured_from)


def remember(memory: Memory, size: int, rate: float) -> Memory:
    """Return the memory with a measured size; the newest measurement of a size counts."""
    return Memory({**memory.rates, size: rate}, memory.settled, memory.asked)


def failed(memory: Memory, size: int) -> Memory:
    """Return the memory after a plan that was not fulfilled: no more growth than what is there."""
    return Memory(memory.rates, size, size)


def decide(memory: Memory, *, size: int, bounds: Bounds, objective: float) -> Decision:
    """Decide for a size that is measured and held.

    Args:
        memory: what was measured; it contains `size`.
        size: members now.
        bounds: sizes allowed.
        objective: the least marginal efficiency of a member.
    """
    if memory.asked is not None and size != memory.asked:
        memory = Memory(memory.rates, None, size)  # somebody else chose this size
    rate = memory.rates[size]
    smaller = max((n for n, r in memory.rates.items() if bounds.minimum <= n < size and r > 0), default=None)
    if smaller is None:
        return _grow(memory, size, bounds, f"{_measured(size, rate)}, no smaller size is known")
    before = memory.rates[smaller]
    gain = ((rate - before) / (size - smaller)) / (before / smaller)
    facts = (
        f"{_measured(smaller, before)}, {_measured(size, rate)}: a further member adds {gain:.0%} "
        f"of an average one ({before / smaller:.1f} samples/s)"
    )
    if gain < objective:
        after = Memory(memory.rates, smaller, smaller)
        return Decision(smaller, f"{facts}, below minMarginalEfficiency {objective:.0%}: back to {smaller}", after)
    return _grow(memory, size, bounds, f"{facts}, at least minMarginalEfficiency {objective:.0%}")


def _grow(memory: Memory, size: int, bounds: Bounds, facts: str) -> Decision:
    if memory.settled is not None and size >= memory.settled:
        return Decision(None, f"{facts}; settled at {size}", memory)
    target = min(2 * size, bounds.maximum)
    if target <= size:
        return Decision(None, f"{facts}; {bounds.limit} allows no more than {bounds.maximum}", memory)
    bound = f", bounded by {bounds.limit}" if target < 2 * size else ""
    return Decision(target, f"{facts}: grow to {target}{bound}", Memory(memory.rates, memory.settled, target))


def _measured(size: int, rate: float) -> str:
    return f"{size} members: {rate:.1f} samples/s"
