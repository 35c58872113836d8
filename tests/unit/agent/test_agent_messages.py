"""What an agent makes of the worlds in the master's messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from elasticjob_agent.agent_messages import unpack_world
from elasticjob_api import packed_worlds
from elasticjob_api.v1 import agent_pb2 as pb

WORLD = pb.World(round=3, members=[pb.Member(pod_name="job-worker-0", processes=1)])
SENDS_WORLD: list[Callable[..., pb.MasterMessage]] = [
    lambda **world: pb.MasterMessage(start=pb.Start(rank=1, **world)),
    lambda **world: pb.MasterMessage(world_changed=pb.WorldChanged(rank=1, **world)),
]


@pytest.mark.guarantee("upgrade-while-jobs-run")
@pytest.mark.parametrize("message", SENDS_WORLD, ids=["start", "world_changed"])
def test_masters_of_both_versions_send_the_same_world(
    message: Callable[..., pb.MasterMessage],
) -> None:
    of_earlier = message(world=WORLD)
    of_this = message(packed_world=packed_worlds.pack(WORLD))
    assert unpack_world(of_earlier) is None
    assert unpack_world(of_this) is None
    assert of_this == of_earlier == message(world=WORLD)


@pytest.mark.parametrize("message", SENDS_WORLD, ids=["start", "world_changed"])
def test_a_world_that_cannot_be_unpacked_is_a_problem(
    message: Callable[..., pb.MasterMessage],
) -> None:
    assert "packed_world" in (unpack_world(message(packed_world=b"?")) or "")


def test_a_command_without_a_world_is_left_as_it_is() -> None:
    stop = pb.MasterMessage(stop=pb.Stop(round=3))
    assert unpack_world(stop) is None
    assert stop == pb.MasterMessage(stop=pb.Stop(round=3))
