"""A measured figure: its name, its goal, and its line in the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec


class NotMeasured(Exception):
    """This machine lacks something that the figure needs, as the message says."""


@dataclass(frozen=True)
class Result:
    """The result of a measurement.

    Attributes:
        ours: the measured values; the figure is their median.
        limits: the values of the raw limit, measured in the same run.
        unit: the unit of both.
        n: the number of measurements, if it is not that of the values.
        ratio: how near the figure is to the limit; 1 means that it cannot be improved. Default: the
            ratio of the medians.
        same_requests: what the same requests take without the operator, sent as fast as the API
            server answers; empty if it was not measured.
    """

    ours: Sequence[float]
    limits: Sequence[float]
    unit: str
    n: int | None = None
    ratio: float | None = None
    same_requests: Sequence[float] = ()

    @property
    def value(self) -> float:
        """The figure."""
        return median(self.ours)


def ratio_of(ours: Sequence[float], limits: Sequence[float], unit: str) -> Result:
    """Return a result whose figure is the ratio itself, of values that should be large."""
    ratio = median(ours) / median(limits)
    return Result([ratio], limits, unit, n=len(ours), ratio=ratio)


async def in_turn(rounds: int, *measures: Callable[[], Awaitable[float]]) -> list[list[float]]:
    """Return the values of each measurement, taken in turn: other load affects all of them."""
    taken = [[await measure() for measure in measures] for _ in range(rounds)]
    return [list(values) for values in zip(*taken, strict=True)]


@dataclass(frozen=True)
class Figure:
    """One line of the results.

    Attributes:
        name: its name.
        measure: measures it; `bench_cluster.on_cluster` adapts a function that needs a cluster.
        goal: the value it should reach.
        at_least: more is better.
    """

    name: str
    measure: Callable[[], Awaitable[Result]]
    goal: float
    at_least: bool = False

    def meets(self, result: Result) -> bool:
        """True if the goal is reached."""
        return result.value >= self.goal if self.at_least else result.value <= self.goal


def line(figure: Figure, result: Result) -> str:
    """Return the JSON line."""
    value = result.value
    limit = median(result.limits)
    ratio = result.ratio
    if ratio is None:
        ratio = value / limit if figure.at_least else limit / value
    numbers = {"value": value, "limit": limit, "ratio": ratio}
    if len(result.ours) > 1:
        numbers |= {"least": min(result.ours), "most": max(result.ours)}
    if result.same_requests:
        numbers["same_requests"] = median(result.same_requests)
    rounded = {name: float(f"{number:.4g}") for name, number in numbers.items()}
    n = len(result.ours) if result.n is None else result.n
    line = {"figure": figure.name, "unit": result.unit, "n": n, **rounded}
    return msgspec.json.encode(line).decode()


def append(path: Path, text: str) -> None:
    """Add a line to the results."""
    with path.open("a") as results:
        results.write(text + "\n")
