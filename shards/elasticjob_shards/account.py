"""The account of a data set.

How many shards are in which state, and what each member has leased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """The numbers of a data set's shards by state.

    `returned` counts leases that ended without a result.
    """

    total: int
    done: int
    leased: int
    waiting: int
    returned: int
    failed: int


@dataclass(frozen=True)
class LeasesOfRound:
    """Shards of a data set that a member says it has leased, for its process of a round.

    `ended`: that process has reported them and ended, and the report is still to come.
    """

    dataset: str
    round: int
    shards: Sequence[int]
    ended: bool = False


@dataclass(slots=True)
class Holder:
    """The leases of one member.

    Their positions, and its latest request with an id, with the positions it got.
    """

    leased: set[int] = field(default_factory=set)
    request_id: str = ""
    latest: list[int] = field(default_factory=list)
