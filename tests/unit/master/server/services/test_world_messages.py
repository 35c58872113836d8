"""Checks that Start messages contain the world and each member's ranks and environments."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elasticjob_api import packed_worlds
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.server import protobuf
from elasticjob_master.server.services.world_messages import WorldMessages
from hypothesis import given
from hypothesis import strategies as st


def members(slots: list[int]) -> list[Member]:
    return [
        Member(
            Identity(
                f"job-worker-{i}", f"uid-{i}", "worker", i, address=f"10.0.0.{i}", slots=number
            ),
            i + 1,
            disconnected_since=None,
        )
        for i, number in enumerate(slots)
    ]


@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    slots=st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=20),
    process_round=st.integers(min_value=1, max_value=2**53),
)
def test_the_concatenated_start_is_decoded_as_the_whole_message(
    framework: str, slots: list[int], process_round: int
) -> None:
    world = members(slots)
    messages = WorldMessages(process_round, world, FRAMEWORKS[framework])
    processes = FRAMEWORKS[framework].processes([member.identity.peer for member in world])
    environment = FRAMEWORKS[framework].environment(processes)
    shown = list(map(protobuf.member, world))
    for each, number in zip(shown, slots, strict=True):
        each.processes = number
    short = [protobuf.member_of_packed_world(*each) for each in zip(world, slots, strict=True)]
    for position, member in enumerate(world):
        rank = sum(slots[:position])
        others = [environment(rank + local_rank) for local_rank in range(1, slots[position])]
        assert member.uid in messages
        whole = pb.MasterMessage(
            start=pb.Start(
                world=pb.World(round=process_round, members=shown),
                rank=rank,
                environment=environment(rank),
                other_environments=[
                    pb.ProcessEnvironment(variables=variables) for variables in others
                ],
            ),
        )
        assert pb.MasterMessage.FromString(messages.start(member.uid, packed=False)) == whole
        packed = pb.MasterMessage.FromString(messages.start(member.uid, packed=True))
        unpacked = packed_worlds.unpack(packed.start.packed_world)
        assert unpacked == pb.World(round=process_round, members=short)
        packed.start.ClearField("packed_world")
        packed.start.world.CopyFrom(whole.start.world)
        assert packed == whole
    assert "a-stranger" not in messages


@pytest.mark.guarantee("upgrade-while-jobs-run")
@pytest.mark.parametrize("packed", [True, False])
def test_a_world_is_sent_in_the_form_that_the_agent_reads(packed: bool) -> None:
    messages = WorldMessages(3, members([1, 2]), FRAMEWORKS["pytorch"])
    start = pb.MasterMessage.FromString(messages.start("uid-1", packed=packed)).start
    change = pb.MasterMessage.FromString(messages.world_changed("uid-1", packed=packed))
    for each in (start, change.world_changed):
        assert each.HasField("world") != packed
        assert bool(each.packed_world) == packed
        world = packed_worlds.unpack(each.packed_world) if packed else each.world
        assert each.rank == 1
        assert world.round == 3
        assert [member.processes for member in world.members] == [1, 2]


@pytest.mark.guarantee("lists-of-large-worlds")
@pytest.mark.parametrize(
    ("listed", "fetches", "goes_on", "framework", "left_out"),
    [
        (2, True, False, "pytorch", True),
        (3, True, False, "pytorch", False),
        (2, False, False, "pytorch", False),
        (2, True, True, "pytorch", False),
        (2, True, False, "horovod", False),
    ],
)
def test_only_a_process_that_ends_with_its_large_world_is_started_without_the_list(
    listed: int, fetches: bool, goes_on: bool, framework: str, left_out: bool
) -> None:
    """Other processes may ask for the list when its world has ended."""
    world = members([1, 2, 3])
    world[2].identity = replace(world[2].identity, role="ps")
    messages = WorldMessages(3, world, FRAMEWORKS[framework], listed_members=listed)
    rendered = messages.start("uid-1", packed=True, fetches=fetches, goes_on=goes_on)
    start = pb.MasterMessage.FromString(rendered).start
    assert bool(start.packed_world) != left_out
    change = pb.MasterMessage.FromString(messages.world_changed("uid-1", packed=True))
    assert change.world_changed.packed_world
    if left_out:
        answer = pb.GetWorldOfRoundResponse.FromString(messages.answer)
        whole = packed_worlds.unpack(answer.packed_world)
        assert (start.position, start.rank) == (1, 1)
        assert start.world == pb.World(
            round=3,
            members=[whole.members[0], whole.members[2]],
            member_count=3,
            process_count=6,
            digest=packed_worlds.digest(whole),
        )
