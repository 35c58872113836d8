"""What is told of the account of a data set: where the shards are, and what each member holds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Account:
    """Where all shards of a data set are; `returned` counts leases that ended without result."""

    total: int
    done: int
    leased: int
    waiting: int
    returned: int
    failed: int


@dataclass(slots=True)
class Holder:
    """What one member holds: leased positions, and its latest named request with the positions it got."""

    leased: set[int] = field(default_factory=set)
    request_id: str = ""
    latest: list[int] = field(default_factory=list)
