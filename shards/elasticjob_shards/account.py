"""The account of a data set: the number of shards by state, and the leases of each member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """The numbers of shards by state. `returned` counts leases that ended without a result."""

    total: int
    done: int
    leased: int
    waiting: int
    returned: int
    failed: int


@dataclass(frozen=True)
class LeasesOfRound:
    """Shards that a member reports as leased by its process of a round.

    `ended` means that this process has ended, and its report of these shards will follow.
    """

    dataset: str
    round: int
    shards: Sequence[int]
    ended: bool = False


@dataclass(slots=True)
class Holder:
    """The positions that a member has leased, and those of its latest request with an id."""

    leased: set[int] = field(default_factory=set)
    request_id: str = ""
    latest: list[int] = field(default_factory=list)
