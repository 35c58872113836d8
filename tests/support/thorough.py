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


def some_of(parameters: Iterable[Any], *, first: int = 0, every: int = 0) -> list[ParameterSet]:
    """Return all parameters; only the thorough run takes more than a sample of them.

    Args:
        parameters: one value each, or `pytest.param` with the values of several names.
        first: `make test` takes as many from the beginning.
        every: and of all, beginning with the first, one in this number; 0: none.
    """
    found = []
    for number, each in enumerate(parameters):
        name = getattr(each, "name", str(each))
        given = each if isinstance(each, ParameterSet) else pytest.param(each, id=name)
        if number >= first and not (every and number % every == 0):
            given = given._replace(marks=[*given.marks, pytest.mark.thorough])
        found.append(given)
    return found


def crash_matrix(
    scenarios: Iterable[tuple[str, Sequence[Any]]], points: Sequence[int]
) -> list[ParameterSet]:
    """Return a test's parameters: those of each scenario with each point, with an id for each.

    `make test` runs every point of the first scenario, and a part of the points of the others.

    Args:
        scenarios: their names and parameters; the first one must be representative.
        points: for example the numbers of the writes before which the operator is killed.
    """
    cases = [
        pytest.param(*parameters, point, id=f"{name}-{point}")
        for name, parameters in scenarios
        for point in points
    ]
    return some_of(cases, first=len(points), every=EVERY)
