"""A measured figure: its name, its goal, and its JSON line in the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class Result:
    """The result of a measurement.

    Attributes:
        value: the figure, a median.
        unit: its unit.
        limit: the raw limit that was measured in the same run.
        ratio: how near the figure is to the limit; 1 means that it cannot be improved.
        n: how often it was measured.
    """

    value: float
    unit: str
    limit: float
    ratio: float
    n: int


@dataclass(frozen=True)
class Figure:
    """One line of the results.

    Attributes:
        name: its name.
        measure: measures it; `bench.bench_cluster.on_cluster` adapts a function that needs a control plane.
        goal: the value it should reach.
        at_least: whether more is better.
    """

    name: str
    measure: Callable[[], Awaitable[Result]]
    goal: float
    at_least: bool = False

    def meets(self, result: Result) -> bool:
        """Whether the goal is reached."""
        return result.value >= self.goal if self.at_least else result.value <= self.goal


def line(figure: Figure, result: Result) -> str:
    """Return the JSON line."""
    values = {
        "figure": figure.name,
        "value": _short(result.value),
        "unit": result.unit,
        "limit": _short(result.limit),
        "ratio": _short(result.ratio),
        "n": result.n,
    }
    return msgspec.json.encode(values).decode()


def append(path: Path, text: str) -> None:
    """Add a line to the results."""
    with path.open("a") as results:
        results.write(text + "\n")


def _short(value: float) -> float:
    return float(f"{value:.4g}")
