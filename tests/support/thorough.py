"""Marks test parameters of which every run takes some, and `--thorough` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


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
