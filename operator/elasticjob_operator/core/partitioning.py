"""Which partition a namespace belongs to, and which partitions a process of the operator leads.

With `--partitions` several processes share the work of one installation: each partition has a Lease
of its own, and all jobs of a namespace belong to one partition.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_PARTITIONS = 64


@dataclass(frozen=True)
class Partition:
    """One of `number` parts of all namespaces, by a hash that no version may change."""

    index: int = 0
    number: int = 1

    def __str__(self) -> str:
        return f"partition {self.index} of {self.number}"

    def has(self, namespace: str) -> bool:
        """Return whether the jobs of a namespace belong to this partition."""
        digest = hashlib.sha256(namespace.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.number == self.index


@dataclass(frozen=True)
class Scope:
    """The namespaces on whose jobs a leader works: those of a partition, or only one (not None)."""

    namespace: str | None = None
    partition: Partition = Partition()

    @property
    def only(self) -> Callable[[str], bool] | None:
        """Says whether a namespace belongs to the partition; None if a watch need not check it."""
        return None if self.partition.number == 1 else self.partition.has


@dataclass
class Shares:
    """Who leads which partition, as one process last observed it, and what it may do about it.

    Processes with different observations can decide differently, and each of them can be wrong.
    That moves a partition once too often, or leaves it without a leader for a moment. Only a Lease
    gives the right to work on a partition.

    Attributes:
        number: the number of partitions.
        led: the partitions that this process leads.
    """

    number: int = 1
    led: set[int] = field(default_factory=set)
    _others: dict[int, str] = field(default_factory=dict)
    _asked: int | None = None

    def observe(self, partition: int, other: str, *, is_wanted: bool) -> None:
        """Keep which other process leads a partition, or an empty text if none does.

        `is_wanted` says whether this process' wish for the partition is stored at its Lease.
        """
        is_same = self._others.get(partition, "") == other
        if partition == self._asked and not (is_same and is_wanted):
            self._asked = None
        if other:
            self._others[partition] = other
        else:
            self._others.pop(partition, None)

    def may_take(self) -> bool:
        """Return whether this process leads less than its share, so that it takes a free partition.

        A process that waits for its first partition is not known to the others, so what nobody
        takes for some seconds is taken beyond the share.
        """
        processes = len(set(self._others.values())) + 1
        return len(self.led) < math.ceil(self.number / processes)

    def ask(self, partition: int) -> bool:
        """Return whether to ask the leader of a partition to give it up.

        It leads at least two more than this process, and there is one wish at a time: each
        granted wish brings the numbers of partitions closer to each other.
        """
        leads = Counter(self._others.values())[self._others.get(partition, "")]
        if self._asked is not None or leads < len(self.led) + 2:
            return False
        self._asked = partition
        return True

    def give(self, partition: int) -> bool:
        """Return whether to give up a partition that another process wants; never the last one."""
        if len(self.led) < 2:
            return False
        self.led.discard(partition)
        return True
