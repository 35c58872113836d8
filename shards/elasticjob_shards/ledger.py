"""The ledger of one data set: which shards are waiting, leased, done and failed.

Every shard ends exactly once as done or failed. The sum of waiting, leased, done and failed shards
is always the total. A lease ends when the training process of its member has ended. A shard that is
reported as done is done, even if it is waiting or leased to another member: the lease of the
reporting member was returned, or was lost with a crashed master.

The master answers a report only when its effect is stored, so no shard that was confirmed as done
is trained again. It answers a lease request in the same way. While the state cannot be stored, it
answers lease requests at once: members report their leases to the next master, which leases nothing
before that. A lease request has an id, and a repeated request gets the same shards. Otherwise the
shards of a lost answer would stay leased to a member that does not know them.

Internally a shard is identified by its position in the order of handing out. So the leased shards
are a few runs of numbers, even if the data set is shuffled. The memory is proportional to the
number of leased, waiting and failed shards, not to the size of the data set.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from elasticjob_api.limits import MAX_LEASED_SHARDS
from elasticjob_api.refusals import BadRequest, NotCurrent

from elasticjob_shards import checkpoint
from elasticjob_shards.account import Account, Holder, LeasesOfRound
from elasticjob_shards.dataset import Dataset, Shard

MOST_FAILED = 2_000
LONGEST_REQUEST_ID = 64
_MOST_FORGOTTEN = 200_000
"""The number of positions that may have been handed out since the state was last stored."""
_MOST_UNDONE = 400_000
"""A limit for checkpoints: fewer shards than this can be undone."""


class Ledger:
    """The ledger of one data set.

    Attributes:
        dataset: the data set; a stream has its present size.
        fresh: the first position that has not been handed out.
        failed: positions of shards that were reported as failed.
        returned: the number of leases that ended without a result so far.
        restored_world: the round of the latest world that has restored a checkpoint; 0 for none.
        restored_round: the earliest round in which a process of that world began. What processes
            of earlier rounds have trained is not in the model any more.
        restored_from: the hash of that checkpoint.
    """

    def __init__(self, dataset: Dataset, *, may_lag_behind: bool = False) -> None:
        self.dataset = dataset
        self.fresh = 0
        self.failed: set[int] = set()
        self.returned = 0
        self.restored_world = 0
        self.restored_round = 0
        self.restored_from = ""
        self._holders: dict[str, Holder] = {}
        self._leases: dict[int, str] = {}
        self._waiting: set[int] = set()
        self._next: list[int] = []
        """A heap of the waiting positions, and of some that were reported while they waited."""
        self._may_lag_behind = may_lag_behind
        """True if an earlier master may have handed out positions without storing them."""

    # --- requests of members

    def lease(
        self, uid: str, count: int, request_id: str = "", *, most: int = MAX_LEASED_SHARDS
    ) -> list[Shard]:
        """Lease up to `count` shards, waiting ones first, to a member that may lease `most`.

        If `request_id` is that of the member's latest request, return the same shards again.
        """
        if len(request_id) > LONGEST_REQUEST_ID:
            raise BadRequest(
                f"request_id has {len(request_id)} characters; at most {LONGEST_REQUEST_ID} are "
                "allowed"
            )
        if not 1 <= count <= MAX_LEASED_SHARDS:
            raise BadRequest(f"count is {count}; it must be between 1 and {MAX_LEASED_SHARDS}")
        holder = self._holders.setdefault(uid, Holder())
        if request_id and request_id == holder.request_id:
            return [
                self.dataset.at(position) for position in holder.latest if position in holder.leased
            ]
        taken = self._take(min(count, most - len(holder.leased)))
        holder.leased.update(taken)
        self._leases.update(dict.fromkeys(taken, uid))
        if taken:
            holder.request_id = request_id
            holder.latest = taken
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
        """End leases, by shard ids; a repeated report changes nothing.

        Return the shards whose report does not count. These are shards that were trained in an
        earlier round, before a checkpoint was restored, and failed shards that are leased to
        another member now, which may succeed.
        """
        if 0 < round_ < self.restored_round:
            return [*done, *failed]
        done_at = self._positions(done)
        returned_at = self._positions(returned)
        failed_at = self._positions(failed)
        if failed_at and len(self.failed.union(failed_at)) > MOST_FAILED:
            raise BadRequest(
                f"failed has {len(failed_at)} shards and {len(self.failed)} of {self.dataset.name} "
                "have failed before; "
                f"at most {MOST_FAILED} may: repair the data set, or report what cannot be trained "
                "as done"
            )
        self._catch_up(max((*done_at, *returned_at, *failed_at), default=-1))
        for at in done_at:
            self._settle(at)
        stale = []
        for shard, at in zip(failed, failed_at, strict=True):
            if self._leases.get(at, uid) != uid:
                stale.append(shard)
            elif self._settle(at):
                self.failed.add(at)
        self._give_back(at for at in returned_at if self._leases.get(at) == uid)
        return stale

    def release(self, uid: str) -> None:
        """Return all leases of a member whose training process has ended."""
        holder = self._holders.get(uid)
        if holder is not None:
            self._give_back(sorted(holder.leased))
            del self._holders[uid]

    def extend(self, size: int, *, final: bool) -> None:
        """Extend a stream, or end it. Raises `BadRequest`."""
        self.dataset = self.dataset.grown(size, final=final)

    def resume_leases(self, uid: str, leases: LeasesOfRound) -> None:
        """Take over leases of an earlier master from the member that has them.

        The stored state may be older. Those that ended with a checkpoint, which a later round has
        restored, stay ended. Raises BadRequest if there are no such shards, or too many.
        """
        if leases.round < self.restored_round:
            return
        if len(leases.shards) > MAX_LEASED_SHARDS:
            told = f"{len(leases.shards)} shards of {self.dataset.name}"
            raise BadRequest(f"leased has {told}; at most {MAX_LEASED_SHARDS} are possible")
        positions = self._positions(leases.shards)
        self._catch_up(max(positions, default=-1))
        holder = self._holders.setdefault(uid, Holder())
        for at in positions:
            known = self._leases.get(at)
            if known is not None and not leases.ended:
                self._holders[known].leased.discard(at)
            elif at in self._waiting:
                self._waiting.discard(at)
            else:
                continue  # it is done, has failed, or is trained by another member now
            self._leases[at] = uid
            holder.leased.add(at)

    def return_unreported(self, uid: str, reported: Iterable[LeasesOfRound]) -> None:
        """Return the leases that a member does not report as its own.

        The stored state is older than they are, or the member has not got the answer to its latest
        request. It repeats that request, which is a new one then.
        """
        holder = self._holders.get(uid)
        if holder is None:
            return
        held = {
            self.dataset.position(shard)
            for leases in reported
            if leases.round >= self.restored_round
            for shard in leases.shards
            if 0 <= shard < self.dataset.total
        }
        unknown = sorted(holder.leased - held)
        if unknown:
            holder.request_id = ""
            self._give_back(unknown)

    # --- state of the shards

    def account(self) -> Account:
        """Return the numbers of shards by state."""
        total = self.dataset.total
        leased = len(self._leases)
        again = len(self._waiting)
        failed = len(self.failed)
        done = self.fresh - leased - again - failed
        return Account(total, done, leased, again + total - self.fresh, self.returned, failed)

    @property
    def finished(self) -> bool:
        """True if every shard is done or failed, and no more shards will be added."""
        handed_out = self.fresh == self.dataset.total and not self.dataset.growing
        return handed_out and not self._leases and not self._waiting

    def waiting(self) -> list[int]:
        """Return the positions that will be handed out again."""
        return sorted(self._waiting)

    def holders(self) -> Mapping[str, Holder]:
        """Return the leases of each member by UID."""
        return self._holders

    # --- checkpoints and restarts

    def checkpoint(self) -> bytes:
        """Return a checkpoint of the present state, in which leased shards are undone."""
        undone = [*self._waiting, *self._leases]
        return checkpoint.encode(
            self.dataset, checkpoint.Position(self.fresh, undone, list(self.failed))
        )

    def restore(
        self, state: bytes, world: int, *, first_round: int = 0, only: bool = False
    ) -> None:
        """Return to a checkpoint for the processes of a world, and end all leases.

        Args:
            state: the checkpoint; empty bytes are the beginning.
            world: the round of the world. All its processes restore the same checkpoint.
            first_round: the earliest round in which one of its processes began; 0: that of the
                world.
            only: the world has no other process. It may call repeatedly: its process has restarted.

        Raises:
            BadRequest: this is not a checkpoint of the data set.
            NotCurrent: this world has restored another checkpoint, or a later one has restored one.
        """
        name = checkpoint.digest(state)
        if world < self.restored_world or (world == self.restored_world and not only):
            if (world, name) == (self.restored_world, self.restored_from):
                return
            raise NotCurrent(
                f"round is {world}, but round {self.restored_world} has already restored a "
                f"checkpoint of {self.dataset.name}: all processes of a round must restore the "
                "same one"
            )
        self.dataset, position = checkpoint.decode(state, self.dataset, most=_MOST_UNDONE)
        self.restored_world = world
        self.restored_round = first_round or world
        self.restored_from = name
        self.returned += len(self._leases)
        self._holders = {}
        self._leases = {}
        self.resume_from(fresh=position.fresh, waiting=position.undone, failed=position.failed)

    def resume_from(self, *, fresh: int, waiting: Iterable[int], failed: Iterable[int]) -> None:
        """Set the state of a checkpoint or of a stored ledger, which may be outdated."""
        self.fresh = fresh
        self._waiting = set(waiting)
        self.failed = set(failed)
        self._next = sorted(self._waiting)
        self._may_lag_behind = True

    def resume_holder(self, uid: str, holder: Holder) -> None:
        """Restore a member's leases after a restart of the master."""
        self._holders[uid] = holder
        self._leases.update(dict.fromkeys(holder.leased, uid))

    # --- single positions

    def _take(self, count: int) -> list[int]:
        taken: list[int] = []
        while self._next and len(taken) < count:
            position = heapq.heappop(self._next)
            if position in self._waiting:  # otherwise it was reported while it waited
                self._waiting.discard(position)
                taken.append(position)
        fresh = range(self.fresh, min(self.fresh + max(count - len(taken), 0), self.dataset.total))
        self.fresh += len(fresh)
        taken.extend(fresh)
        return taken

    def _positions(self, shards: Sequence[int]) -> list[int]:
        wrong = next((shard for shard in shards if not 0 <= shard < self.dataset.total), None)
        if wrong is not None:
            raise BadRequest(
                f"shard {wrong} does not exist; {self.dataset.name} has {self.dataset.total} shards"
            )
        return [self.dataset.position(shard) for shard in shards]

    def _catch_up(self, newest: int) -> None:
        """Record that an earlier master has handed out the positions up to this one."""
        if newest < self.fresh:
            return
        if not self._may_lag_behind or newest >= self.fresh + _MOST_FORGOTTEN:
            shard = self.dataset.at(newest).id
            raise BadRequest(f"shard {shard} of {self.dataset.name} was never leased")
        self._wait(range(self.fresh, newest + 1))
        self.fresh = newest + 1

    def _settle(self, position: int) -> bool:
        """End a shard, even if another member leased it; return False if it had already ended."""
        uid = self._leases.pop(position, None)
        if uid is not None:
            self._holders[uid].leased.discard(position)
            return True
        waits = position in self._waiting
        self._waiting.discard(position)
        return waits

    def _give_back(self, positions: Iterable[int]) -> None:
        given: list[int] = []
        for position in positions:
            uid = self._leases.pop(position)
            self._holders[uid].leased.discard(position)
            given.append(position)
        self._wait(given)
        self.returned += len(given)

    def _wait(self, positions: Iterable[int]) -> None:
        for position in positions:
            heapq.heappush(self._next, position)
            self._waiting.add(position)
