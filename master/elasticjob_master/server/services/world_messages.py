"""The messages that send a world to its members: Start and WorldChanged.

The part that is the same for all members is serialized once. It is the whole list of members:
packed, and in full for agents of an earlier version. Of a large world, a process that ends with it
gets the first member of each role: its agent fetches the list if the program asks for it. What
continues from world to world gets each list, as it may ask for the list of an earlier world.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from elasticjob_api import packed_worlds
from elasticjob_api.frameworks import Framework
from elasticjob_api.limits import LISTED_MEMBERS
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.server import protobuf


class WorldMessages:
    """The messages that send one world to its members."""

    def __init__(
        self,
        process_round: int,
        members: Sequence[Member],
        framework: Framework,
        listed_members: int = LISTED_MEMBERS,
    ) -> None:
        """Prepare the messages of a round; larger worlds than `listed_members` are fetched."""
        self.process_round = process_round
        self._elastic_driver = framework.elastic_driver
        processes = framework.processes([member.identity.peer for member in members])
        self._environment = framework.environment(processes)
        self._positions = {member.uid: position for position, member in enumerate(members)}
        self._ranks = {uid: processes.ranks(position) for uid, position in self._positions.items()}
        self._members = members
        self._may_leave_out = len(members) > listed_members and not framework.in_process_elastic

    def __contains__(self, uid: str) -> bool:
        return uid in self._ranks

    def start(
        self,
        uid: str,
        *,
        packed: bool,
        fetches: bool = False,
        crash_excused: bool = False,
        goes_on: bool = False,
    ) -> bytes:
        """Return the serialized Start for one member.

        The concatenation of two serialized messages is decoded as one message with the fields of
        both.

        Args:
            uid: the member.
            packed: its agent reads packed worlds.
            fetches: its agent fetches a list of members that is left out.
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
        if fetches and not goes_on and self._may_leave_out:
            start.position = self._positions[uid]
            shared = self._start_without_list
        return pb.MasterMessage(start=start).SerializeToString() + shared

    def world_changed(self, uid: str, *, packed: bool) -> bytes:
        """Return the serialized WorldChanged for a member whose process continues."""
        change = pb.WorldChanged(rank=self._ranks[uid].start)
        shared = self._packed_change if packed else self._full_change
        return pb.MasterMessage(world_changed=change).SerializeToString() + shared

    @cached_property
    def _short_world(self) -> pb.World:
        short = [
            protobuf.member_of_packed_world(member, len(self._ranks[member.uid]))
            for member in self._members
        ]
        return pb.World(round=self.process_round, members=short)

    @cached_property
    def _packed_world(self) -> bytes:
        return packed_worlds.pack(self._short_world)

    @cached_property
    def answer(self) -> bytes:
        """The serialized answer to GetWorldOfRound."""
        return pb.GetWorldOfRoundResponse(packed_world=self._packed_world).SerializeToString()

    @cached_property
    def _start_without_list(self) -> bytes:
        firsts: dict[str, pb.Member] = {}
        for member in self._short_world.members:
            firsts.setdefault(member.role, member)
        world = pb.World(
            round=self.process_round,
            members=firsts.values(),
            member_count=len(self._members),
            process_count=sum(map(len, self._ranks.values())),
            digest=packed_worlds.digest(self._short_world),
        )
        return pb.MasterMessage(start=pb.Start(world=world)).SerializeToString()

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
