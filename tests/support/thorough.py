"""Chooses the test parameters and examples of every run; `--thorough` takes all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


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
