"""Converts the ledger of a data set to its stored form and back."""

from __future__ import annotations

import msgspec
from elasticjob_shards import Dataset, Ledger
from elasticjob_shards.account import Holder
from elasticjob_shards.runs import pack, unpack

from elasticjob_master.core.rendezvous.members import Members

_MOST = 10_000_000
"""A bound on the numbers in a stored set, larger than any real set."""


class StoredHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member's leases of one data set, by request: runs of positions."""

    uid: str
    request_id: str = ""
    latest: list[int] = []
    earlier: list[int] = []


class StoredLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A data set and its ledger. `waiting` and `failed` are runs of positions."""

    name: str
    size: int
    shard_size: int
    epochs: int
    shuffle: bool = False
    seed: int = 0
    parts: list[int] = []
    parts_digest: str = ""
    streamed: bool = False
    ended: bool = False
    fresh: int = 0
    waiting: list[int] = []
    failed: list[int] = []
    returned: int = 0
    restored_round: int = 0
    restored_from: str = ""
    holders: list[StoredHolder] = []


def store_ledger(ledger: Ledger) -> StoredLedger:
    """Return the stored form."""
    dataset = ledger.dataset
    return StoredLedger(
        name=dataset.name,
        size=dataset.size,
        shard_size=dataset.shard_size,
        epochs=dataset.epochs,
        shuffle=dataset.shuffle,
        seed=dataset.seed,
        parts=list(dataset.parts),
        parts_digest=dataset.parts_digest,
        streamed=dataset.streamed,
        ended=dataset.ended,
        fresh=ledger.fresh,
        waiting=pack(ledger.waiting()),
        failed=pack(ledger.failed),
        returned=ledger.returned,
        restored_round=ledger.restored_round,
        restored_from=ledger.restored_from,
        holders=[
            _store_holder(uid, holder) for uid, holder in ledger.holders().items() if holder.leased
        ],
    )


def restore_ledger(stored: StoredLedger, members: Members) -> Ledger:
    """Return a ledger. Leases of a pod that is not a member wait for other members."""
    account = Ledger(
        Dataset(
            name=stored.name,
            size=stored.size,
            shard_size=stored.shard_size,
            epochs=stored.epochs,
            shuffle=stored.shuffle,
            seed=stored.seed,
            parts=tuple(stored.parts),
            parts_digest=stored.parts_digest,
            streamed=stored.streamed,
            ended=stored.ended,
        )
    )
    holders = [(stored.uid, _holder(stored)) for stored in stored.holders]
    orphaned = [
        position
        for uid, holder in holders
        if members.get(uid) is None
        for position in holder.leased
    ]
    waiting = [*unpack(stored.waiting, most=_MOST), *orphaned]
    account.resume_from(
        fresh=stored.fresh, waiting=waiting, failed=unpack(stored.failed, most=_MOST)
    )
    account.returned = stored.returned + len(orphaned)
    account.restored_round = stored.restored_round
    account.restored_from = stored.restored_from
    for uid, holder in holders:
        if members.get(uid) is not None:
            account.resume_holder(uid, holder)
    return account


def _store_holder(uid: str, holder: Holder) -> StoredHolder:
    latest = holder.leased.intersection(holder.latest)
    return StoredHolder(
        uid=uid,
        request_id=holder.request_id,
        latest=pack(latest),
        earlier=pack(holder.leased - latest),
    )


def _holder(stored: StoredHolder) -> Holder:
    latest = unpack(stored.latest, most=_MOST)
    return Holder({*latest, *unpack(stored.earlier, most=_MOST)}, stored.request_id, latest)
