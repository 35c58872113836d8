"""Worlds that a job may train in, for the auto-scaler.

Smooth throughput curves, and the nasty ones of real clusters. A world says how fast each size is at
each time. `named_worlds` are fixed ones, and `drawn` draws one of each of the `KINDS` at random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

HOUR = 3600.0


Curve = Callable[[int], float]


@dataclass(frozen=True)
class Servers:
    """Two parameter servers.

    Attributes:
        per_core: samples/s that one core serves; without a bound the servers only look busy.
        cores: the cores of each server at the beginning.
        room: cores that each may get.
        most: how many the job may have.
        spinning: they use all of their CPU even when idle.
    """

    per_core: float = math.inf
    cores: float = 2.0
    room: float = 30.0
    most: int = 0
    spinning: bool = False

    def load(self, rate: float, cores: float) -> float:
        """Return the part of their CPU that they use."""
        return 0.97 if self.spinning else min(1.0, rate / (2 * cores * self.per_core))

    def bounded(self, rate: float, cores: float) -> float:
        """Return the rate that is left of what the workers could train."""
        return rate / math.pow(1 + (rate / (2 * cores * self.per_core)) ** 8, 0.125)


@dataclass(frozen=True)
class World:
    """The throughput that a job with one role of workers finds.

    Attributes:
        curve: samples per second by size, without what changes with time.
        minimum, maximum: the sizes that the job allows.
        factor: what the throughput of every size is multiplied with, by seconds since the start.
        slow_start: another such factor, by seconds since the latest rescale.
        noise: standard deviation of the mean rate of 300 s, relative to it.
        later: another curve, from `later_at` seconds on.
        pods: how many members the cluster can run.
        rescale: seconds without training in every rescale.
        node: members of a node, which the pods show; 0: their nodes are not known.
        servers: the parameter servers; None: there are none.
    """

    kind: str
    name: str
    curve: Curve
    start: int
    maximum: int = 64
    minimum: int = 1
    objective: float = 0.5
    noise: float = 0.02
    factor: Callable[[float], float] = lambda _seconds: 1.0
    slow_start: Callable[[float], float] = lambda _seconds: 1.0
    later: Curve | None = None
    later_at: float = 12 * HOUR
    pods: int = 10_000
    rescale: float = 30.0
    node: int = 0
    servers: Servers | None = None

    def node_of(self, index: int) -> str:
        """Return the name of a member's node; empty if it is not known."""
        return f"node-{index // self.node}" if self.node else ""

    def rate(self, size: int, seconds: float, cores: float = 0.0) -> float:
        """Return samples per second, with this number of cores of each server."""
        later = self.later is not None and seconds >= self.later_at
        rate = (self.later if later and self.later is not None else self.curve)(size)
        return (
            self.servers.bounded(rate, cores) if self.servers is not None else rate
        ) * self.factor(seconds)

    def best(self, seconds: float, cores: float = 0.0) -> int:
        """Return the size of the highest worth; see `worth`."""
        sizes = range(self.minimum, min(self.maximum, self.pods) + 1)
        return max(sizes, key=lambda size: (round(self.worth(size, seconds, cores), 9), -size))

    def worth(self, size: int, seconds: float, cores: float = 0.0) -> float:
        """Return the value that the objective measures.

        Throughput per member to the power of the least marginal efficiency. Where every member adds
        less than the one before, its maximum is the last size that meets the objective.
        """
        return math.log(self.rate(size, seconds, cores)) - self.objective * math.log(size)


def linear(size: int) -> float:
    """Return the throughput of perfect scaling."""
    return 100.0 * size


def saturating(serial: float) -> Curve:
    """Amdahl's law."""
    return lambda size: 100.0 * size / (1 + serial * (size - 1))


def network_bound(serial: float, network: float) -> Curve:
    """The universal scalability law: beyond a size, more members make the job slower."""
    return lambda size: 100.0 * size / (1 + serial * (size - 1) + network * size * (size - 1))


def input_bound(most: float) -> Curve:
    """The storage delivers at most this number of samples per second."""
    return lambda size: min(100.0 * size, most)


def queueing(most: float) -> Curve:
    """Servers that get slower with their load."""
    return lambda size: 100.0 * size / (1 + (100.0 * size / most) ** 4) ** 0.25


CURVES: dict[str, Curve] = {
    "linear": linear,
    "saturating, 2 % serial": saturating(0.02),
    "saturating, 8 % serial": saturating(0.08),
    "network-bound, peak at 26": network_bound(0.01, 0.0015),
    "network-bound, peak at 10": network_bound(0.02, 0.01),
    "input-bound at 12": input_bound(1200.0),
    "input-bound at 40": input_bound(4000.0),
    "queueing at 20": queueing(2000.0),
}
STARTS = (1, 2, 3, 5, 8, 12, 20, 32, 48, 64)


def named_worlds() -> list[World]:
    """Return every smooth curve with many initial sizes, and worlds with other difficulties."""
    worlds = [
        World("smooth", f"{name}; from {start}", curve, start)
        for name, curve in CURVES.items()
        for start in STARTS
    ]
    worlds += [
        World(
            "smooth",
            f"{name}; from 2; objective {objective:.0%}",
            curve,
            2,
            objective=objective,
            noise=0.01,
        )
        for name, curve in CURVES.items()
        for objective in (0.3, 0.7)
    ]
    worlds += [
        World("drift", "storage gets slow", input_bound(4000.0), 4, later=input_bound(1000.0)),
        World("drift", "serial work is mended", saturating(0.1), 4, later=saturating(0.01)),
        World("drift", "a neighbour takes half", linear, 2, later=lambda n: 50.0 * n),
        World("drift", "faster, at the bound", linear, 2, 16, later=lambda n: 200.0 * n),
        World("servers", "no CPU to be had", linear, 2, servers=Servers(300.0, room=0.0)),
        World("servers", "CPU to be had", linear, 2, servers=Servers(300.0)),
        World(
            "servers", "they only look busy", saturating(0.02), 24, servers=Servers(spinning=True)
        ),
        World("pods", "20 pods to be had", linear, 2, pods=20),
        World("pods", "20 pods to be had, saturating", saturating(0.02), 2, pods=20),
        World("rescale", "a rescale costs 10 minutes", saturating(0.02), 2, rescale=600.0),
        World("large", "4 to 1,000 members", saturating(0.002), 8, 1000, minimum=4),
    ]
    return worlds


# --- drawn at random


def _smooth(rng: random.Random) -> tuple[str, Curve]:
    kind = rng.choice(("saturating", "network-bound", "input-bound", "queueing"))
    if kind == "saturating":
        serial = math.exp(rng.uniform(math.log(0.004), math.log(0.25)))
        return f"{serial:.1%} serial", saturating(serial)
    if kind == "network-bound":
        serial = math.exp(rng.uniform(math.log(0.002), math.log(0.1)))
        peak = rng.uniform(6.0, 100.0)
        return f"peak at {peak:.0f}", network_bound(serial, (1 - serial) / peak**2)
    most = math.exp(rng.uniform(math.log(2.5), math.log(80.0)))
    return f"{kind} at {most:.1f}", (input_bound if kind == "input-bound" else queueing)(
        100.0 * most
    )


def _nodes(rng: random.Random) -> tuple[str, Curve]:
    """Every further node costs communication, and one that is partly used makes the others wait."""
    node = rng.choice((4, 8))
    loss = rng.uniform(0.15, 0.4)
    crossing = rng.uniform(0.03, 0.2)

    def curve(n: int) -> float:
        nodes = -(-n // node)
        uneven = 1 - loss if nodes > 1 and n % node else 1.0
        return 100.0 * n * uneven / (1 + crossing * (nodes - 1))

    return f"nodes of {node}, {loss:.0%} lost, crossing {crossing:.0%}", curve


def _cliff(rng: random.Random) -> tuple[str, Curve]:
    """A plateau, and beyond it a sudden loss."""
    flat = rng.uniform(4, 24)
    edge = flat * rng.uniform(1.2, 2.5)
    left = rng.uniform(0.4, 0.8)
    return (
        f"flat from {flat:.0f}, {left:.0%} from {edge:.0f}",
        lambda n: 100.0 * min(n, flat) * (left if n > edge else 1.0),
    )


def _power(rng: random.Random) -> tuple[str, Curve]:
    exponent = rng.uniform(0.3, 0.95)
    return f"power {exponent:.2f}", lambda n: 100.0 * n**exponent


def _onset(rng: random.Random) -> tuple[str, Curve]:
    """Communication begins with the second member."""
    left = rng.uniform(0.5, 0.8)
    name, smooth = _smooth(rng)
    return f"{left:.0%} from 2 on, {name}", lambda n: smooth(n) * (left if n > 1 else 1.0)


def _trend(rng: random.Random) -> tuple[str, Callable[[float], float]]:
    each = rng.uniform(-0.15, 0.3)
    return f"{each:+.0%} an hour", lambda seconds: max(0.2, 1 + each * seconds / HOUR)


def _disturbed(rng: random.Random) -> tuple[str, Callable[[float], float]]:
    """A straggler, or another tenant, for some time or for good."""
    begin = rng.uniform(200, 4000)
    lasts = rng.choice((600.0, 1800.0, math.inf))
    left = rng.uniform(0.5, 0.85)
    name = f"{left:.0%} from {begin:.0f} s for {lasts:.0f} s"
    return name, lambda seconds: left if begin <= seconds < begin + lasts else 1.0


_SHAPES = {"nodes": _nodes, "cliff": _cliff, "power": _power, "onset": _onset}
KINDS = ("smooth", "noisy", *_SHAPES, "trend", "disturbed")
UNSEEN = 1000
"""From this number on, no constant of the rules was tuned to a world."""


def drawn(kind: str, number: int) -> World:
    """Return a random world of a kind, the same one for the same number."""
    rng = random.Random(f"{kind} {number}")  # noqa: S311 - a simulation
    maximum = rng.choice((8, 16, 32, 64))
    start = rng.choice([size for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if size <= maximum])
    noise = rng.choice((0.005, 0.01, 0.02, 0.03))
    objective = rng.choice((0.5, 0.5, 0.5, 0.3, 0.7))
    name, curve = _SHAPES.get(kind, _smooth)(rng)
    factor: Callable[[float], float] = lambda _seconds: 1.0  # noqa: E731 - a default like that of the field
    if kind == "noisy":
        noise = rng.uniform(0.04, 0.08)
    elif kind in ("trend", "disturbed"):
        change, factor = (_trend if kind == "trend" else _disturbed)(rng)
        name = f"{name}, {change}"
    name = (
        f"{kind} {number}: {name}; "
        f"from {start} of {maximum}, noise {noise:.1%}, objective {objective}"
    )
    return World(kind, name, curve, start, maximum, objective=objective, noise=noise, factor=factor)
