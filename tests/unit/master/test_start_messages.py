"""The Start messages of a world: all contain the same world, each its own rank and environment."""

from __future__ import annotations

from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.server import protobuf
from elasticjob_master.server.services.start_messages import StartMessages
from hypothesis import given
from hypothesis import strategies as st


def members(number: int) -> list[Member]:
    return [
        Member(
            Identity(f"job-worker-{i}", f"uid-{i}", "worker", i, address=f"10.0.0.{i}"), i + 1, disconnected_since=None
        )
        for i in range(number)
    ]


@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    number=st.integers(min_value=1, max_value=20),
    process_round=st.integers(min_value=1, max_value=2**53),
    command=st.integers(min_value=1, max_value=2**63),
)
def test_the_bytes_of_a_start_are_those_of_the_whole_message(
    framework: str, number: int, process_round: int, command: int
) -> None:
    world = members(number)
    starts = StartMessages(process_round, world, FRAMEWORKS[framework])
    environment = FRAMEWORKS[framework].environment([protobuf.peer(each) for each in world])
    for rank, member in enumerate(world):
        assert member.uid in starts
        whole = pb.MasterMessage(
            command_id=command,
            start=pb.Start(
                world=pb.World(round=process_round, members=map(protobuf.member, world)),
                rank=rank,
                environment=environment(rank),
            ),
        )
        assert pb.MasterMessage.FromString(starts.start(command, member.uid)) == whole
    assert "a-stranger" not in starts
