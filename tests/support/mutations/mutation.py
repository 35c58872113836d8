"""One mistake that is made on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """In the file `path` of this repository, `old`, which is there once, becomes `new`."""

    name: str
    path: str
    old: str
    new: str
