"""Data sets cut into shards, leased to members and accounted for one by one.

Every shard ends `done` exactly once, whoever is lost: waiting + leased + done is always the total. A lease is free
again when its member's training process is gone. A report of a shard that waits counts too: the member finished it
although the lease was taken back, or was forgotten with a crashed master.

The shell answers a report only when its effect is stored, so no shard that a member was told to be done is trained
again. Leases are answered at once: a forgotten lease is only a shard that waits. So delivery is at least once and the
account is exact. A request is named by its caller and answered the same way when it is repeated, else the shards of an
answer that got lost would be leased to somebody who does not know it.

Shards are handed out in order; shuffling is the consumer's, who knows the seed: `start` and `end` are positions in the
epoch's order. Memory is in proportion to what is leased, not to the size of the data set.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MOST_DATASETS = 64
MOST_LEASES = 10_000
LONGEST_REQUEST_ID = 64
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_LARGEST = 2**53


class BadRequest(Exception):
    """A request that makes no sense; the message names field, value and bound."""


class Unknown(Exception):
    """A data set that was not declared."""


class Differs(Exception):
    """A data set that was declared otherwise before."""


@dataclass(frozen=True)
class Dataset:
    """What a data set is."""

    name: str
    size: int
    shard_size: int
    epochs: int = 1
    shuffle: bool = False
    seed: int = 0

    @property
    def per_epoch(self) -> int:
        """Shards in one epoch."""
        return -(-self.size // self.shard_size)

    @property
    def total(self) -> int:
        """Shards in all epochs."""
        return self.per_epoch * self.epochs

    def shard(self, shard_id: int) -> Shard:
        """Return a shard by its id."""
        epoch, position = divmod(shard_id, self.per_epoch)
        start = position * self.shard_size
        return Shard(shard_id, epoch, start, min(start + self.shard_size, self.size))

    def check(self) -> None:
        """Raise `BadRequest` unless it makes sense."""
        if not _NAME.fullmatch(self.name):
            raise BadRequest(f"dataset is {self.name[:80]!r}; it must have 1 to 63 letters, digits, '-', '_' or '.'")
        for field, value in (("size", self.size), ("shard_size", self.shard_size), ("epochs", self.epochs)):
            if not 1 <= value <= _LARGEST:
                raise BadRequest(f"{field} is {value}; it must be between 1 and {_LARGEST}")
        if self.total > _LARGEST:
            raise BadRequest(f"size, shard_size and epochs make {self.total} shards; at most {_LARGEST} are possible")


@dataclass(frozen=True)
class Shard:
    """A part of one epoch: positions `start` (included) to `end` (excluded) of its order."""

    id: int
    epoch: int
    start: int
    end: int


@dataclass(frozen=True)
class Account:
    """Where all shards of a data set are."""

    total: int
    done: int
    leased: int
    waiting: int
    returned: int


class Ledger:
    """The account of one data set."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        fresh: int = 0,
        undone: Iterable[int] = (),
        early: Iterable[int] = (),
        returned: int = 0,
        answers: Mapping[str, tuple[str, list[int]]] | None = None,
        restored: bool = False,
    ) -> None:
        """Open the account, or go on with a stored one.

        Args:
            dataset: the data set.
            fresh: shards below this id have been handed out before.
            undone: which of them are not done.
            early: shards from `fresh` on that are done: reported to a restarted master that did not know the lease.
            returned: leases that ended without being done, so far.
            answers: the latest named request of each member, and the shards it got.
            restored: the stored state may be older than what was handed out.
        """
        self.dataset = dataset
        self.fresh = fresh
        self.returned = returned
        self._leases: dict[int, str] = {}
        self._by_uid: dict[str, set[int]] = {}
        self._waiting = sorted(undone)
        self._is_waiting = set(self._waiting)
        self._early = set(early)
        self._answers = dict(answers or {})
        self._restored = restored

    def lease(self, uid: str, count: int, request_id: str = "") -> list[Shard]:
        """Lease up to `count` shards to a member: those given back first, then fresh ones.

        Repeating the member's latest request, named by `request_id`, gives the same shards.
        """
        if len(request_id) > LONGEST_REQUEST_ID:
            raise BadRequest(f"request_id has {len(request_id)} characters; at most {LONGEST_REQUEST_ID} are taken")
        latest, given = self._answers.get(uid, ("", []))
        if request_id and request_id == latest:
            return [self.dataset.shard(shard_id) for shard_id in given if self._leases.get(shard_id) == uid]
        if not 1 <= count <= MOST_LEASES:
            raise BadRequest(f"count is {count}; it must be between 1 and {MOST_LEASES}")
        taken: list[Shard] = []
        mine = self._by_uid.setdefault(uid, set())
        if len(mine) + count > MOST_LEASES:
            raise BadRequest(
                f"{len(mine)} shards are leased to {uid}; with {count} more it would be over {MOST_LEASES}"
            )
        while len(taken) < count:
            shard_id = self._next_waiting()
            if shard_id is None:
                break
            self._leases[shard_id] = uid
            mine.add(shard_id)
            taken.append(self.dataset.shard(shard_id))
        if request_id and taken:
            self._answers[uid] = (request_id, [shard.id for shard in taken])
        return taken

    def report(self, uid: str, done: Iterable[int], returned: Iterable[int]) -> list[int]:
        """End leases. Return what was reported done but is another member's by now; repeating a report is harmless."""
        done, returned = list(done), list(returned)
        wrong = next((i for i in (*done, *returned) if not 0 <= i < self.dataset.total), None)
        if wrong is not None:
            raise BadRequest(f"shard {wrong} does not exist; {self.dataset.name} has {self.dataset.total} shards")
        stale = [shard_id for shard_id in done if not self._finish(uid, shard_id)]
        for shard_id in returned:
            if self._leases.get(shard_id) == uid:
                self._give_back(uid, shard_id)
        return stale

    def release(self, uid: str) -> None:
        """Take back every lease of a member whose training process is gone."""
        for shard_id in sorted(self._by_uid.get(uid, ())):
            self._give_back(uid, shard_id)
        self._by_uid.pop(uid, None)
        self._answers.pop(uid, None)

    def account(self) -> Account:
        """Return where the shards are."""
        total, leased = self.dataset.total, len(self._leases)
        waiting = len(self._is_waiting) + total - self.fresh - len(self._early)
        return Account(total, total - leased - waiting, leased, waiting, self.returned)

    @property
    def finished(self) -> bool:
        """Every shard is done."""
        account = self.account()
        return account.done == account.total

    def holders(self) -> dict[str, list[int]]:
        """Return the leases by member."""
        return {uid: sorted(ids) for uid, ids in self._by_uid.items() if ids}

    def answers(self) -> dict[str, tuple[str, list[int]]]:
        """Return the latest named request of each member, and the shards it got."""
        return dict(self._answers)

    def undone(self) -> list[int]:
        """Return what has been handed out and is not done."""
        return sorted(self._is_waiting.union(self._leases))

    def early(self) -> list[int]:
        """Return what is done although it was not handed out as far as this master knows."""
        return sorted(self._early)

    def restore_lease(self, uid: str, shard_id: int) -> None:
        """Give a waiting shard back to the member that had it before the master restarted."""
        if shard_id in self._is_waiting:
            self._is_waiting.discard(shard_id)
            self._leases[shard_id] = uid
            self._by_uid.setdefault(uid, set()).add(shard_id)

    def _next_waiting(self) -> int | None:
        while self._waiting:
            shard_id = heapq.heappop(self._waiting)
            if shard_id in self._is_waiting:  # else it was reported done, or leased, while it waited
                self._is_waiting.discard(shard_id)
                return shard_id
        while self.fresh < self.dataset.total:
            self.fresh += 1
            if self.fresh - 1 not in self._early:
                return self.fresh - 1
            self._early.discard(self.fresh - 1)
        return None

    def _finish(self, uid: str, shard_id: int) -> bool:
        holder = self._leases.get(shard_id)
        if holder is not None:
            if holder != uid:
                return False
            del self._leases[shard_id]
            self._by_uid[uid].discard(shard_id)
        elif shard_id in self._is_waiting:
            self._is_waiting.discard(shard_id)
        elif shard_id >= self.fresh:
            if not self._restored:
                raise BadRequest(f"shard {shard_id} of {self.dataset.name} was never leased to anybody")
            if len(self._early) >= MOST_LEASES:
                return False
            self._early.add(shard_id)
        return True  # also when it is done already: the report is a repetition

    def _give_back(self, uid: str, shard_id: int) -> None:
        del self._leases[shard_id]
        self._by_uid[uid].discard(shard_id)
        heapq.heappush(self._waiting, shard_id)
        self._is_waiting.add(shard_id)
        self.returned += 1


class Ledgers:
    """All data sets by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Ledger] = {}

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def declare(self, dataset: Dataset) -> Ledger:
        """Declare a data set; repeating it is harmless, changing it is refused."""
        dataset.check()
        known = self._by_name.get(dataset.name)
        if known is None:
            if len(self._by_name) >= MOST_DATASETS:
                raise BadRequest(f"there are {MOST_DATASETS} data sets already; no more are possible")
            known = self._by_name[dataset.name] = Ledger(dataset)
        if known.dataset != dataset:
            raise Differs(f"data set {dataset.name} was declared as {known.dataset}, now as {dataset}")
        return known

    def get(self, name: str) -> Ledger:
        """Return a ledger; raises `Unknown`."""
        if name not in self._by_name:
            raise Unknown(f"data set {name[:80]!r} was not declared; call CreateDataset first")
        return self._by_name[name]

    def restore(self, ledger: Ledger) -> None:
        """Take a stored ledger."""
        self._by_name[ledger.dataset.name] = ledger

    def release(self, uid: str) -> None:
        """Take back every lease of a member."""
        for ledger in self._by_name.values():
            ledger.release(uid)
