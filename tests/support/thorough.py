"""Chooses the test parameters and examples of every run; `--thorough` takes all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

EVERY = 4
"""Of the points of all scenarios but the first, `make test` has one in this number."""


def examples(number: int) -> int:
    """Return this number of random examples with `--thorough`, and a fifth of it otherwise."""
    usual = settings().max_examples < settings.get_profile("thorough").max_examples
    return max(1, number // 5) if usual else number


def some_of(parameters: Iterable[Any], *, every: int) -> list[Any]:
    """Return all parameters, marking all except every n-th one for the thorough run."""
    found = []
    for number, each in enumerate(parameters):
        name = getattr(each, "name", str(each))
        marks = [pytest.mark.thorough]
        if number % every == 0:
            marks = []
        found.append(pytest.param(each, id=name, marks=marks))
    return found


def thorough_only(*parameters: Any) -> list[Any]:
    """Return parameters, each one value or a tuple, that only the thorough run takes."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.thorough)
        for each in parameters
    ]


def crash_matrix(
    scenarios: Sequence[tuple[str, Sequence[Any]]], points: Iterable[int]
) -> list[ParameterSet]:
    """Return a test's parameters: those of each scenario with each point, with an id for each.

    `make test` runs every point of the first scenario, and a part of the points of the others, each
    beginning at another point. `--thorough` runs all.

    Args:
        scenarios: their names and parameters; the first one must be representative.
        points: for example the numbers of the writes before which the operator is killed.
    """
    found = []
    for number, (name, parameters) in enumerate(scenarios):
        for point in points:
            is_run = number == 0 or (point + number) % EVERY == 0
            marks = () if is_run else (pytest.mark.thorough,)
            found.append(pytest.param(*parameters, point, id=f"{name}-{point}", marks=marks))
    return found
