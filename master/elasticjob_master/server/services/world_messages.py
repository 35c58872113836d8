"""The messages that send a world to its members: Start and WorldChanged.

A world of a thousand members takes a hundred kilobytes, and each member receives all of it. So the
part that is the same for all members is serialized once.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks import Framework
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.server import protobuf


class WorldMessages:
    """The messages that send one world to its members."""

    def __init__(self, process_round: int, members: Sequence[Member], framework: Framework) -> None:
        self.process_round = process_round
        processes = framework.processes([protobuf.peer(member) for member in members])
        self._environment = framework.environment(processes)
        firsts = [rank for rank, process in enumerate(processes) if process.local_rank == 0]
        self._ranks = {
            member.uid: range(first, first + processes[first].local_size)
            for member, first in zip(members, firsts, strict=True)
        }
        world = pb.World(round=process_round, members=map(protobuf.member, members))
        for member in world.members:
            member.processes = len(self._ranks[member.pod_uid])
        start = pb.Start(world=world, elastic_driver=framework.elastic_driver)
        self._shared_start = pb.MasterMessage(start=start).SerializeToString()
        change = pb.WorldChanged(world=world)
        self._shared_change = pb.MasterMessage(world_changed=change).SerializeToString()

    def __contains__(self, uid: str) -> bool:
        return uid in self._ranks

    def start(self, uid: str, *, crash_excused: bool = False, goes_on: bool = False) -> bytes:
        """Return the serialized Start for one member.

        The concatenation of two serialized messages is decoded as one message with the fields of
        both.
        """
        ranks = self._ranks[uid]
        first, *others = map(self._environment, ranks)
        start = pb.Start(
            rank=ranks.start,
            environment=first,
            other_environments=[pb.ProcessEnvironment(variables=variables) for variables in others],
            crash_excused=crash_excused,
            goes_on=goes_on,
        )
        return pb.MasterMessage(start=start).SerializeToString() + self._shared_start

    def world_changed(self, uid: str) -> bytes:
        """Return the serialized WorldChanged for a member whose process continues."""
        change = pb.WorldChanged(rank=self._ranks[uid].start)
        return pb.MasterMessage(world_changed=change).SerializeToString() + self._shared_change
