"""Defines one deliberate mistake."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """In the file `path` of this repository, `old`, which occurs once, becomes `new`."""

    name: str
    path: str
    old: str
    new: str
