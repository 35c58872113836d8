"""Marks test parameters of which every run takes some, and `--thorough` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(parameters: Iterable[Any], *, every: int) -> list[Any]:
    """Return all parameters, marking all except every n-th one for the thorough run."""
    return [
        pytest.param(
            each,
            id=getattr(each, "name", str(each)),
            marks=[] if number % every == 0 else [pytest.mark.thorough],
        )
        for number, each in enumerate(parameters)
    ]
