"""Samples of test matrices: scenarios by the points at which they are interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

EVERY = 4
"""Of the points of all scenarios but the first, `make test` has one in this number."""


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
