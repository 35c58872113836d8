"""All data sets of a job, and their common limits: the stored state must hold all ledgers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elasticjob_api.limits import MAX_LEASED_SHARDS
from elasticjob_api.refusals import BadRequest, DeclaredDifferently, UnknownName

from elasticjob_shards.account import LeasesOfRound
from elasticjob_shards.dataset import MOST_PARTS, Dataset
from elasticjob_shards.ledger import Ledger

MOST_DATASETS = 64
MOST_LEASES = 131_072
"""The greatest number of leases of all members and data sets."""


class Ledgers:
    """The ledgers of all data sets by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Ledger] = {}
        self.may_lag_behind = False
        """True if an earlier master may have leased shards without storing their data sets."""

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def declare(self, dataset: Dataset) -> Ledger:
        """Declare a data set, or extend a stream, and return its ledger.

        Repeating a declaration changes nothing.

        Raises:
            BadRequest: the data set is invalid, or the job has too many.
            DeclaredDifferently: it was declared with other values.
        """
        dataset.check()
        known = self._by_name.get(dataset.name)
        if known is None:
            self._check_bounds(dataset)
            known = self._by_name[dataset.name] = Ledger(
                dataset, may_lag_behind=self.may_lag_behind
            )
        if known.dataset.declaration != dataset.declaration:
            difference = _difference(known.dataset.declaration, dataset.declaration)
            raise DeclaredDifferently(f"data set {dataset.name} was declared with {difference}")
        if dataset.streamed and not known.dataset.ended:
            known.extend(dataset.size, final=False)
        return known

    def get(self, name: str) -> Ledger:
        """Return a ledger. Raises `UnknownName`."""
        if name not in self._by_name:
            raise UnknownName(f"data set {name[:80]!r} was not declared; call CreateDataset first")
        return self._by_name[name]

    def restore(self, ledger: Ledger) -> None:
        """Insert a restored ledger."""
        self._by_name[ledger.dataset.name] = ledger

    def resume_leases(
        self, uid: str, leases: Sequence[LeasesOfRound], *, complete: bool = False
    ) -> list[str]:
        """Take over a member's leases from an earlier master.

        If they are complete, the member holds no others, whatever the stored state contains.
        Return the problems with those that are unknown here, because stored state was lost.
        """
        problems = []
        for each in leases:
            try:
                self.get(each.dataset).resume_leases(uid, each)
            except (BadRequest, UnknownName) as error:
                problems.append(str(error))
        if complete:
            for ledger in self:
                name = ledger.dataset.name
                ledger.return_unreported(uid, (each for each in leases if each.dataset == name))
        return problems

    def release(self, uid: str) -> None:
        """Return all leases of a member."""
        for ledger in self._by_name.values():
            ledger.release(uid)

    def lease_limit(self, members: int) -> int:
        """Return how many shards of one data set each of this number of members may lease."""
        return max(1, min(MAX_LEASED_SHARDS, MOST_LEASES // (max(1, members) * max(1, len(self)))))

    def _check_bounds(self, dataset: Dataset) -> None:
        if len(self) >= MOST_DATASETS:
            raise BadRequest(f"there are {MOST_DATASETS} data sets already; no more are possible")
        parts = sum(len(ledger.dataset.parts) for ledger in self)
        if parts + len(dataset.parts) > MOST_PARTS:
            raise BadRequest(
                f"parts has {len(dataset.parts)} parts and other data sets have {parts}; "
                f"at most {MOST_PARTS} are possible in all: put more samples into one part"
            )


def _difference(known: Dataset, new: Dataset) -> str:
    """Return the first field that differs, with both values."""
    if (known.parts, known.parts_digest) != (new.parts, new.parts_digest):
        return f"{len(known.parts)} parts before, and with {len(new.parts)} or others now"
    fields = ("streamed", "size", "shard_size", "epochs", "shuffle", "seed")
    field = next(field for field in fields if getattr(known, field) != getattr(new, field))
    return f"{field}={getattr(known, field)} before, and with {field}={getattr(new, field)} now"
