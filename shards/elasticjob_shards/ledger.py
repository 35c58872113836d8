"""The account of one data set.

Every shard ends done or failed exactly once: waiting + leased + done + failed is always the total. A lease is free
again when its member's training process is gone. A report of a shard that waits counts too: the member finished it
although the lease was taken back, or was forgotten with a crashed master.

The shell answers a report only when its effect is stored, so no shard that a member was told to be done is trained
again. Leases are answered at once: a forgotten lease is only a shard that waits. So delivery is at least once and the
account is exact. A request is named by its caller and answered the same way when it is repeated, else the shards of an
answer that got lost would be leased to somebody who does not know it.

Inside, shards are known by their position in the order in which they are handed out, so that what is leased stays a few
runs of numbers also when the data set is shuffled. Memory is in proportion to what is leased or has failed, not to the
size of the data set.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from elasticjob_api.limits import MAX_LEASED_SHARDS
from elasticjob_api.refusals import BadRequest, NotCurrent

from elasticjob_shards import checkpoint
from elasticjob_shards.account import Account, Holder
from elasticjob_shards.dataset import Dataset, Shard

MOST_FAILED = 2_000
LONGEST_REQUEST_ID = 64
_MOST_FORGOTTEN = 200_000
"""How far what was handed out may be ahead of what a restarted master knows."""
_MOST_UNDONE = 400_000
"""In a checkpoint: more than there can ever be."""


class Ledger:
    """The account of one data set.

    Attributes:
        dataset: the data set; of a stream: as large as it is known to be.
        fresh: positions below this one have been handed out.
        failed: positions that were given up.
        returned: leases that ended without being done, so far.
        restored_round: the round that has taken the account back to a checkpoint, the latest one; 0: none.
        restored_from: stands for that checkpoint.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.fresh = 0
        self.failed: set[int] = set()
        self.returned = 0
        self.restored_round = 0
        self.restored_from = ""
        self._holders: dict[str, Holder] = {}
        self._leases: dict[int, str] = {}
        self._waiting: set[int] = set()
        self._next: list[int] = []
        """What waits, as a heap; and what has been reported done while it waited."""
        self._forgetful = False

    # --- what members ask --------------------------------------------------------------------------------------------

    def lease(self, uid: str, count: int, request_id: str = "", *, most: int = MAX_LEASED_SHARDS) -> list[Shard]:
        """Lease up to `count` shards to a member that may hold `most`: those given back first, then fresh ones.

        Repeating the member's latest request, named by `request_id`, gives the same shards.
        """
        if len(request_id) > LONGEST_REQUEST_ID:
            raise BadRequest(f"request_id has {len(request_id)} characters; at most {LONGEST_REQUEST_ID} are taken")
        if not 1 <= count <= MAX_LEASED_SHARDS:
            raise BadRequest(f"count is {count}; it must be between 1 and {MAX_LEASED_SHARDS}")
        holder = self._holders.setdefault(uid, Holder())
        if request_id and request_id == holder.request_id:
            return [self.dataset.at(position) for position in holder.latest if position in holder.leased]
        taken = self._take(min(count, most - len(holder.leased)))
        holder.leased.update(taken)
        self._leases.update(dict.fromkeys(taken, uid))
        if taken:
            holder.request_id, holder.latest = request_id, taken
        return [self.dataset.at(position) for position in taken]

    def report(
        self,
        uid: str,
        done: Sequence[int] = (),
        returned: Sequence[int] = (),
        failed: Sequence[int] = (),
        *,
        round_: int = 0,
    ) -> list[int]:
        """End leases, by shard ids; repeating a report is harmless.

        Returns what was reported done or failed but does not count: it is another member's by now, or the account has
        been taken back to a checkpoint since the round in which it was trained.
        """
        if 0 < round_ < self.restored_round:
            return [*done, *failed]
        done_at, returned_at, failed_at = self._positions(done), self._positions(returned), self._positions(failed)
        if failed_at and len(self.failed.union(failed_at)) > MOST_FAILED:
            raise BadRequest(
                f"failed has {len(failed_at)} shards and {len(self.failed)} of {self.dataset.name} have failed before; "
                f"at most {MOST_FAILED} may: repair the data set, or report what cannot be trained as done"
            )
        self._recall(max((*done_at, *returned_at, *failed_at), default=-1))
        stale = [shard for shard, at in zip(done, done_at, strict=True) if self._settle(uid, at) == "stale"]
        for shard, at in zip(failed, failed_at, strict=True):
            outcome = self._settle(uid, at)
            if outcome == "stale":
                stale.append(shard)
            elif outcome == "ended":
                self.failed.add(at)
        self._give_back(at for at in returned_at if self._leases.get(at) == uid)
        return stale

    def release(self, uid: str) -> None:
        """Take back every lease of a member whose training process is gone."""
        holder = self._holders.pop(uid, None)
        if holder is not None:
            self._give_back(sorted(holder.leased), holder)

    def extend(self, size: int, *, final: bool) -> None:
        """Make a stream larger, or end it. Raises `BadRequest`."""
        self.dataset = self.dataset.grown(size, final=final)

    # --- where everything is -----------------------------------------------------------------------------------------

    def account(self) -> Account:
        """Return where the shards are."""
        total, leased, again, failed = self.dataset.total, len(self._leases), len(self._waiting), len(self.failed)
        done = self.fresh - leased - again - failed
        return Account(total, done, leased, again + total - self.fresh, self.returned, failed)

    @property
    def finished(self) -> bool:
        """Every shard is done or failed, and no more will come."""
        handed_out = self.fresh == self.dataset.total and not self.dataset.growing
        return handed_out and not self._leases and not self._waiting

    def waiting(self) -> list[int]:
        """Return the positions that were handed out and wait to be handed out again."""
        return sorted(self._waiting)

    def holders(self) -> Mapping[str, Holder]:
        """Return what each member holds."""
        return self._holders

    # --- checkpoints and restarts ------------------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """Return what is done, and what has failed, at this moment."""
        undone = [*self._waiting, *self._leases]
        return checkpoint.encode(self.dataset, checkpoint.Position(self.fresh, undone, list(self.failed)))

    def restore(self, state: bytes, round_: int, *, only: bool = False) -> None:
        """Go back to a checkpoint, or with no bytes to the beginning, for the processes of a round; leases are void.

        Args:
            state: the checkpoint.
            round_: the round of the process that restores.
            only: it is the only one of its world. If it comes again, it has crashed and was started again.

        Raises:
            BadRequest: it is no checkpoint of this data set.
            NotCurrent: this round has gone back to another checkpoint, or a later round has to any.
        """
        name = checkpoint.digest(state)
        if round_ < self.restored_round or (round_ == self.restored_round and not only):
            if (round_, name) == (self.restored_round, self.restored_from):
                return
            raise NotCurrent(
                f"round is {round_}, but round {self.restored_round} has taken {self.dataset.name} back to a "
                "checkpoint already: all processes of a round must restore the same one"
            )
        self.dataset, position = checkpoint.decode(state, self.dataset, most=_MOST_UNDONE)
        self.restored_round, self.restored_from = round_, name
        self.returned += len(self._leases)
        self._holders, self._leases = {}, {}
        self.resume_from(fresh=position.fresh, waiting=position.undone, failed=position.failed)

    def resume_from(self, *, fresh: int, waiting: Iterable[int], failed: Iterable[int]) -> None:
        """Take the account from where it was kept: it may be behind what has been handed out since then."""
        self.fresh, self._waiting, self.failed = fresh, set(waiting), set(failed)
        self._next = sorted(self._waiting)
        self._forgetful = True

    def resume_holder(self, uid: str, holder: Holder) -> None:
        """Give a member again what it held before the master restarted."""
        self._holders[uid] = holder
        self._leases.update(dict.fromkeys(holder.leased, uid))

    # --- one by one --------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> list[int]:
        taken: list[int] = []
        while self._next and len(taken) < count:
            position = heapq.heappop(self._next)
            if position in self._waiting:  # else it was reported while it waited
                self._waiting.discard(position)
                taken.append(position)
        fresh = range(self.fresh, min(self.fresh + max(count - len(taken), 0), self.dataset.total))
        self.fresh += len(fresh)
        taken.extend(fresh)
        return taken

    def _positions(self, shards: Sequence[int]) -> list[int]:
        wrong = next((shard for shard in shards if not 0 <= shard < self.dataset.total), None)
        if wrong is not None:
            raise BadRequest(f"shard {wrong} does not exist; {self.dataset.name} has {self.dataset.total} shards")
        return [self.dataset.position(shard) for shard in shards]

    def _recall(self, newest: int) -> None:
        """Take note that a position has been handed out, by a master that has not lived to store it."""
        if newest < self.fresh:
            return
        if not self._forgetful or newest >= self.fresh + _MOST_FORGOTTEN:
            shard = self.dataset.at(newest).id
            raise BadRequest(f"shard {shard} of {self.dataset.name} was never leased to anybody")
        self._wait(range(self.fresh, newest + 1))
        self.fresh = newest + 1

    def _settle(self, uid: str, position: int) -> Literal["ended", "before", "stale"]:
        """End a shard that is leased to this member or waits; tell what has become of it."""
        holder = self._leases.get(position)
        if holder == uid:
            del self._leases[position]
            self._holders[uid].leased.discard(position)
            return "ended"
        if holder is not None:
            return "stale"
        if position in self._waiting:
            self._waiting.discard(position)
            return "ended"
        return "before"

    def _give_back(self, positions: Iterable[int], holder: Holder | None = None) -> None:
        given: list[int] = []
        for position in positions:
            uid = self._leases.pop(position)
            (holder or self._holders[uid]).leased.discard(position)
            given.append(position)
        self._wait(given)
        self.returned += len(given)

    def _wait(self, positions: Iterable[int]) -> None:
        for position in positions:
            heapq.heappush(self._next, position)
            self._waiting.add(position)
