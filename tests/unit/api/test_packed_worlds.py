"""The short form of a world: what an agent reads of it, and what it refuses."""

from __future__ import annotations

import random
import uuid
import zlib

import pytest
from elasticjob_api import packed_worlds
from elasticjob_api.v1 import agent_pb2 as pb


def world(size: int) -> pb.World:
    """Return a world whose addresses and nodes are spread as in a cluster."""
    numbers = random.Random(1)
    members = [
        pb.Member(
            pod_name=f"job-worker-{index}",
            role="worker",
            index=index,
            address=".".join(str(numbers.randrange(256)) for _ in range(4)),
            node_name=f"pool-{uuid.UUID(int=numbers.getrandbits(128)).hex[:5]}",
            processes=8,
        )
        for index in range(size)
    ]
    return pb.World(round=7, members=members)


def test_a_world_is_unpacked_as_it_was_packed() -> None:
    assert packed_worlds.unpack(packed_worlds.pack(world(100))) == world(100)


def test_a_packed_member_takes_a_few_bytes() -> None:
    assert len(packed_worlds.pack(world(10_000))) < 25 * 10_000


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"no zlib", "no compressed World"),
        (zlib.compress(b"\xff\xff"), "no compressed World"),
        (packed_worlds.pack(world(10))[:-1], "incomplete"),
        (zlib.compress(bytes(packed_worlds.MAX_WORLD_BYTES + 1)), "takes more than"),
    ],
    ids=["not-compressed", "no-world", "cut-off", "too-long"],
)
def test_other_bytes_are_refused(packed: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=f"packed_world.*({problem})"):
        packed_worlds.unpack(packed)
