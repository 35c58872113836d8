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
        value: the figure, a median.
        unit: its unit.
        limit: the raw limit, measured in the same run.
        ratio: how near the figure is to the limit; 1 means that it cannot be improved.
        n: the number of measurements.
        least: the least of them; None for a single one.
        most: the most.
        same_requests: what the same requests take without the operator, sent as fast as the API
            server answers; None if it was not measured.
    """

    value: float
    unit: str
    limit: float
    ratio: float
    n: int
    least: float | None = None
    most: float | None = None
    same_requests: float | None = None


def compared(
    ours: Sequence[float], limits: Sequence[float], unit: str, *, at_least: bool = False
) -> Result:
    """Return the medians of our values and of the raw limit's.

    Args:
        ours: our values.
        limits: the values of the raw limit.
        unit: their unit.
        at_least: more is better.
    """
    value = median(ours)
    limit = median(limits)
    ratio = value / limit if at_least else limit / value
    return Result(
        value=value,
        unit=unit,
        limit=limit,
        ratio=ratio,
        n=len(ours),
        least=min(ours),
        most=max(ours),
    )


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
    numbers = {"value": result.value, "limit": result.limit, "ratio": result.ratio}
    for name in ("least", "most", "same_requests"):
        if (number := getattr(result, name)) is not None:
            numbers[name] = number
    rounded = {name: float(f"{number:.4g}") for name, number in numbers.items()}
    line = {"figure": figure.name, "unit": result.unit, "n": result.n, **rounded}
    return msgspec.json.encode(line).decode()


def append(path: Path, text: str) -> None:
    """Add a line to the results."""
    with path.open("a") as results:
        results.write(text + "\n")
