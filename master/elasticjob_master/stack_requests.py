"""Asks the agents for the stacks of their training processes: one request at a time.

A stall asks all agents, and so can users. The answers cost the nodes some CPU time. So users
share the answers of the last `_PAUSE_SECONDS`, and their next request follows after these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from elasticjob_api.frameworks import Framework
from elasticjob_api.refusals import LimitReached

from elasticjob_master.core.rendezvous.commands import CollectStacks
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.stacks import Collection, Stack

ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 5.0
_LONGEST_CALL_SECONDS = 1.5 * ANSWER_SECONDS
"""A call that comes during a request for other ranks waits for it, and then for its own answers."""
_LOOK_SECONDS = 0.1
_MOST_CALLS = 64


class StackRequests:
    """The present request, if any, and the latest answers."""

    def __init__(self, send: Callable[[CollectStacks], None], now: Callable[[], float]) -> None:
        self._send = send
        self._now = now
        self._number = 0
        self._calls = 0
        self._began = float("-inf")
        self._present: Collection | None = None
        self._latest: Collection | None = None

    def begin(self, process_round: int, ranks: Mapping[str, range], *, stalled: bool) -> None:
        """Ask members, whose ranks are given by UID. It replaces the present request."""
        now = self._began = self._now()
        # Also unlike those of an earlier master, which the agents may still answer.
        self._number = max(self._number + 1, int(now * 1000))
        until = now + ANSWER_SECONDS
        self._present = Collection(self._number, process_round, ranks, until)
        for uid in ranks:
            self._send(CollectStacks(uid, self._number, may_pause=stalled))

    def answer(self, uid: str, number: int, processes: Mapping[int, Stack]) -> None:
        """Record a member's answer."""
        if self._present is not None:
            self._present.answer(uid, number, processes)

    def tick(self) -> Collection | None:
        """Return the answers when all have arrived or it is too late for more."""
        if self._present is None or not self._present.is_over(self._now()):
            return None
        self._latest = self._present
        self._present = None
        return self._latest

    async def collected(
        self, process_round: int, ranks: Mapping[str, range], *, stalled: bool
    ) -> Collection:
        """Return answers of these members, at most a moment old. Raises `LimitReached`."""
        if not ranks:
            return Collection(0, process_round, {}, until=0.0)
        if self._calls >= _MOST_CALLS:
            raise LimitReached(f"{_MOST_CALLS} requests for stacks are waiting already")
        since = self._now() - _PAUSE_SECONDS
        self._calls += 1
        try:
            async with asyncio.timeout(_LONGEST_CALL_SECONDS):
                while True:
                    latest = self._latest
                    is_fresh = latest is not None and latest.until - ANSWER_SECONDS >= since
                    if latest is not None and is_fresh and ranks.keys() <= latest.ranks.keys():
                        return latest
                    if self._present is None and self._now() >= self._began + _PAUSE_SECONDS:
                        self.begin(process_round, ranks, stalled=stalled)
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise LimitReached(
                "the stacks of other ranks are collected; ask again in some seconds, for the same "
                "ranks"
            ) from None
        finally:
            self._calls -= 1


def ranks_of(
    members: Sequence[Member], framework: Framework, wanted: Sequence[int] = ()
) -> dict[str, range]:
    """Return the ranks of the processes of each member of a world, by UID.

    Only members with the `wanted` ranks are returned, or all if that is empty.
    """
    peers = [member.identity.peer for member in members]
    uids = {member.identity.pod_name: member.uid for member in members}
    found: dict[str, range] = {}
    for rank, process in enumerate(framework.processes(peers)):
        first = found.get(uids[process.name], range(rank, rank))
        found[uids[process.name]] = range(first.start, rank + 1)
    chosen = set(wanted)
    return {uid: ranks for uid, ranks in found.items() if not chosen or chosen & {*ranks}}
