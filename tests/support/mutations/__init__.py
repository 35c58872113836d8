"""Lists deliberate mistakes; a test must fail for each of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """In the file `path` of this repository, `old`, which occurs once, becomes `new`."""

    name: str
    path: str
    old: str
    new: str
