"""The messages that send a world to its members: Start and WorldChanged.

Each member receives the whole list of members, so the part that is the same for all members is
serialized once: packed, and in full for agents of an earlier version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from elasticjob_api import packed_worlds
from elasticjob_api.frameworks import Framework
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.server import protobuf


class WorldMessages:
    """The messages that send one world to its members."""

    def __init__(self, process_round: int, members: Sequence[Member], framework: Framework) -> None:
        self.process_round = process_round
        self._elastic_driver = framework.elastic_driver
        processes = framework.processes([protobuf.peer(member) for member in members])
        self._environment = framework.environment(processes)
        firsts = [rank for rank, process in enumerate(processes) if process.local_rank == 0]
        self._ranks = {
            member.uid: range(first, first + processes[first].local_size)
            for member, first in zip(members, firsts, strict=True)
        }
        self._members = members

    def __contains__(self, uid: str) -> bool:
        return uid in self._ranks

    def start(
        self, uid: str, *, packed: bool, crash_excused: bool = False, goes_on: bool = False
    ) -> bytes:
        """Return the serialized Start for one member.

        The concatenation of two serialized messages is decoded as one message with the fields of
        both.

        Args:
            uid: the member.
            packed: its agent reads packed worlds.
            crash_excused: see `Start`.
            goes_on: the process continues when the world changes.
        """
        ranks = self._ranks[uid]
        first, *others = map(self._environment, ranks)
        start = pb.Start(
            rank=ranks.start,
            environment=first,
            other_environments=[pb.ProcessEnvironment(variables=variables) for variables in others],
            elastic_driver=self._elastic_driver,
            crash_excused=crash_excused,
            goes_on=goes_on,
        )
        shared = self._packed_start if packed else self._full_start
        return pb.MasterMessage(start=start).SerializeToString() + shared

    def world_changed(self, uid: str, *, packed: bool) -> bytes:
        """Return the serialized WorldChanged for a member whose process continues."""
        change = pb.WorldChanged(rank=self._ranks[uid].start)
        shared = self._packed_change if packed else self._full_change
        return pb.MasterMessage(world_changed=change).SerializeToString() + shared

    @cached_property
    def _packed_world(self) -> bytes:
        short = [
            protobuf.member_of_packed_world(member, len(self._ranks[member.uid]))
            for member in self._members
        ]
        return packed_worlds.pack(pb.World(round=self.process_round, members=short))

    @cached_property
    def _full_world(self) -> pb.World:
        world = pb.World(round=self.process_round, members=map(protobuf.member, self._members))
        for member in world.members:
            member.processes = len(self._ranks[member.pod_uid])
        return world

    @cached_property
    def _packed_start(self) -> bytes:
        start = pb.Start(packed_world=self._packed_world)
        return pb.MasterMessage(start=start).SerializeToString()

    @cached_property
    def _packed_change(self) -> bytes:
        change = pb.WorldChanged(packed_world=self._packed_world)
        return pb.MasterMessage(world_changed=change).SerializeToString()

    @cached_property
    def _full_start(self) -> bytes:
        return pb.MasterMessage(start=pb.Start(world=self._full_world)).SerializeToString()

    @cached_property
    def _full_change(self) -> bytes:
        change = pb.WorldChanged(world=self._full_world)
        return pb.MasterMessage(world_changed=change).SerializeToString()
