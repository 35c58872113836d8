"""The forms that throughput may have as a function of the size: the prior of the model.

The time of a sample, relative to that of a single member, is

    ((1 / n^e + serial)^p + wait^p)^(1/p)
    with wait = shared + sync + congestion (n - 1) + crossing + more (nodes - 2)

for n members: computing its part, and waiting for what the members share. Waiting inside a node
and between nodes differ, and p says how much of it overlaps with computing, as in Pollux (OSDI
'21). The terms in n are those of Optimus (EuroSys '18) and of the universal scalability law, which
has Amdahl's law as a case. A batch may be that of the job (strong scaling: what is waited for does
not get less) or of each member (weak scaling: it grows with the work), so each of these costs is
also known as a factor. Beyond a cliff all members are slower. Where nodes end is a part of the form
until the pods show it.

No form is likely beforehand. The shapes spread evenly over all of them, and `posterior` weighs them
by the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

from elasticjob_master.core.autoscale.scaling_memory import NodeSize
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

T = TypeVar("T")


@dataclass(frozen=True)
class Shape:
    """One of the possible forms; see the module. A cost of 1 is the time of a single member.

    Attributes:
        exponent: e; below 1 every member adds less than the one before, at each size alike.
        serial: computing that no further member makes shorter.
        sharpness: p; 1 adds both times, a large one takes the longer one of them.
        shared: waiting for a resource that all sizes share, such as storage.
        sync: waiting for the other members, from two on.
        congestion: waiting that each further member adds.
        node: members of a node, if the pods do not show it; 0: a second one costs nothing.
        crossing: waiting for a second node.
        more_nodes: waiting for each further one.
        onset: part by which communication makes all steps longer, from two members on.
        slower: the same for each node beyond the first one.
        uneven: part of the throughput that is lost where the last node is not full.
        edge: the size beyond which only the part `left` of the throughput is left.
        left: see `edge`.
    """

    exponent: float = 1.0
    serial: float = 0.0
    sharpness: float = 1.0
    shared: float = 0.0
    sync: float = 0.0
    congestion: float = 0.0
    node: int = 0
    crossing: float = 0.0
    more_nodes: float = 0.0
    onset: float = 0.0
    slower: float = 0.0
    uneven: float = 0.0
    edge: float = math.inf
    left: float = 1.0

    def log_rate(self, size: int, known: NodeSize) -> float:
        """Return the natural logarithm of the throughput, relative to that of one free member."""
        node = known.of(self.node) if self.node else size
        nodes = -(-size // node)
        work = math.pow(size, -self.exponent) + self.serial
        wait = self.shared + self.congestion * (size - 1)
        factor = 1.0
        if size > 1:
            wait += self.sync
            factor += self.onset
        if nodes > 1:
            wait += self.crossing + self.more_nodes * (nodes - 2)
            factor *= 1 + self.slower * (nodes - 1)
            if size % node:
                factor /= 1 - self.uneven
        if size > self.edge:
            factor /= self.left
        seconds = work + wait
        if self.sharpness > 1:
            power = self.sharpness
            seconds = math.pow(math.pow(work, power) + math.pow(wait, power), 1 / power)
        return -math.log(seconds * factor)


@cache
def shapes() -> tuple[Shape, ...]:
    """Return the shapes of all kinds, each as many times as it is likely beforehand."""
    found: list[Shape] = []
    for part, draw in _KINDS:
        points = _even_points(round(part * THRESHOLDS.shapes))
        found.extend(draw(point) for point in points)
    return tuple(found)


@lru_cache(maxsize=128)
def log_rates(size: int, node: NodeSize) -> tuple[float, ...]:
    """Return the logarithm of the relative throughput at a size, for each shape."""
    return tuple(shape.log_rate(size, node) for shape in shapes())


_DIMENSIONS = 7


def _even_points(count: int) -> Iterator[Sequence[float]]:
    """Yield points that fill a cube more evenly than random ones: a Kronecker sequence."""
    ratio = 2.0
    for _ in range(64):  # the root of x^(d+1) = x + 1
        ratio = math.pow(1 + ratio, 1 / (_DIMENSIONS + 1))
    steps = [math.pow(ratio, -each) for each in range(1, _DIMENSIONS + 1)]
    for number in range(1, count + 1):
        yield [(0.5 + number * step) % 1.0 for step in steps]


def _between(part: float, low: float, high: float) -> float:
    """Return a number between two others, at this part of their ratio."""
    return low * math.pow(high / low, part)


def _one_of(part: float, *values: T) -> T:
    return values[int(part * len(values))]


def _bounded(at: Sequence[float]) -> Shape:
    """Something shared bounds the throughput, gently or abruptly, or congestion lowers it."""
    shared = 1 / _between(at[0], 0.7, 200.0) if at[1] > 0.06 else 0.0
    if at[2] < 0.3:
        return Shape(shared=shared, congestion=_between(at[3], 2.0, 150.0) ** -2)
    return Shape(shared=shared, sharpness=_one_of(at[3], 1.0, 1.0, 2.0, 4.0, 16.0, 16.0))


def _with_onset(at: Sequence[float]) -> Shape:
    """The same, and a single member that communicates with no other is faster."""
    shape = _bounded(at)
    onset = _between(at[4], 0.1, 4.0)
    return Shape(
        shared=shape.shared,
        congestion=shape.congestion,
        sharpness=shape.sharpness,
        onset=onset,
    )


def _nodes(at: Sequence[float]) -> Shape:
    """The job's batch is given: what members wait for inside a node and between nodes stays."""
    crossing = _between(at[0], 0.01, 3.0)
    return Shape(
        serial=_between(at[1], 0.003, 0.5) if at[1] > 0.2 else 0.0,
        sharpness=_one_of(at[2], 1.0, 2.0, 4.0),
        sync=_between(at[3], 0.003, 0.5),
        node=_one_of(at[4], 4, 4, 8),
        crossing=crossing,
        more_nodes=crossing * _between(at[5], 0.003, 0.3),
    )


def _slower_nodes(at: Sequence[float]) -> Shape:
    """Each member's batch is given: waiting between nodes makes all steps longer."""
    return Shape(
        node=_one_of(at[0], 4, 8),
        slower=0.02 + 0.2 * at[1],
        uneven=0.1 + 0.35 * at[2],
        onset=_between(at[3], 0.02, 0.4) if at[4] < 0.3 else 0.0,
    )


def _cliff(at: Sequence[float]) -> Shape:
    """A bound, and a sudden loss beyond it."""
    flat = _between(at[0], 2.0, 48.0)
    return Shape(
        shared=1 / flat,
        sharpness=_one_of(at[1], 4.0, 16.0, 16.0),
        edge=flat * (1.0 + 1.6 * at[2]),
        left=0.35 + 0.55 * at[3],
    )


def _power(at: Sequence[float]) -> Shape:
    return Shape(exponent=0.2 + 0.8 * at[0])


_KINDS: tuple[tuple[float, Callable[[Sequence[float]], Shape]], ...] = (
    (0.38, _bounded),
    (0.22, _nodes),
    (0.10, _slower_nodes),
    (0.10, _cliff),
    (0.08, _power),
    (0.12, _with_onset),
)
"""The prior probability of each kind of shape."""
