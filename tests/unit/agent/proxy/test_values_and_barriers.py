"""The processes of one member wait for each other before the member counts as arrived."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller
from elasticjob_agent.proxy.values_and_barriers import MOST_BARRIERS, LocalBarriers
from elasticjob_api.v1.agent_pb2 import World


def process(local_rank: int, local_size: int = 2, round_: int = 1) -> Caller:
    return Caller(round_, World(round=round_), local_rank, local_size)


FIRST = process(0)
SECOND = process(1)


async def test_a_barrier_waits_for_all_processes_and_can_be_used_again() -> None:
    barriers = LocalBarriers()
    for number in range(3):
        first = asyncio.create_task(barriers.arrive("loaded", number, FIRST, None))
        await asyncio.sleep(0)
        await barriers.arrive("other", number, process(0, local_size=1), None)
        assert not first.done()
        await barriers.arrive("loaded", number, SECOND, None)
        await first
        await barriers.arrive(
            "loaded", number, FIRST, None
        )  # its answer got lost behind this one: it asks again


async def test_a_time_out_names_the_missing_processes_and_the_arrival_still_counts() -> None:
    barriers = LocalBarriers()
    with pytest.raises(
        TimeoutError,
        match="barrier 'loaded': 1 of 2 processes of this pod have not arrived, local ranks 1",
    ):
        await barriers.arrive("loaded", 0, FIRST, 0.01)
    await barriers.arrive("loaded", 0, SECOND, None)
    await barriers.arrive("loaded", 0, FIRST, None)


async def test_two_arrivals_of_one_process_count_once() -> None:
    barriers = LocalBarriers()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await barriers.arrive("loaded", 0, FIRST, 0.01)


async def test_a_new_round_begins_with_new_barriers() -> None:
    barriers = LocalBarriers()
    await asyncio.gather(*(barriers.arrive("loaded", 0, each, None) for each in (FIRST, SECOND)))
    with pytest.raises(TimeoutError):
        await barriers.arrive("loaded", 0, process(0, round_=2), 0.01)
    await barriers.arrive("loaded", 0, SECOND, None)  # in an ended round, which the master refuses


async def test_barriers_are_bounded() -> None:
    barriers = LocalBarriers()
    for number in range(MOST_BARRIERS):
        with pytest.raises(TimeoutError):
            await barriers.arrive(f"barrier {number}", 0, FIRST, 0)
    with pytest.raises(
        CallError, match="this round has 1024 barriers, which is the bound; 'one more' is refused"
    ):
        await barriers.arrive("one more", 0, FIRST, 0)


async def test_a_process_that_waits_in_an_ended_world_is_released() -> None:
    barriers = LocalBarriers()
    waiting = asyncio.create_task(barriers.arrive("loaded", 0, FIRST, None))
    await asyncio.sleep(0)
    barriers.begin(2)
    with pytest.raises(CallError, match="its world has ended; the world of round 2 has begun"):
        await waiting


@pytest.mark.guarantee("several-processes-per-pod")
async def test_a_process_that_ends_before_it_arrives_releases_the_others() -> None:
    barriers = LocalBarriers()
    waiting = asyncio.create_task(barriers.arrive("loaded", 0, FIRST, None))
    await asyncio.sleep(0)
    barriers.process_ended(SECOND.local_rank)
    problem = "barrier 'loaded': the process of local rank 1 of this pod has ended"
    with pytest.raises(CallError, match=problem):
        await waiting
    with pytest.raises(CallError, match=problem):
        await barriers.arrive("loaded", 0, FIRST, None)
    barriers.begin_processes()
    await asyncio.gather(*(barriers.arrive("loaded", 0, each, None) for each in (FIRST, SECOND)))


async def test_a_process_that_ends_after_it_has_arrived_holds_nobody_up() -> None:
    barriers = LocalBarriers()
    arrived = asyncio.create_task(barriers.arrive("loaded", 0, SECOND, None))
    await asyncio.sleep(0)
    barriers.process_ended(SECOND.local_rank)
    await barriers.arrive("loaded", 0, FIRST, None)
    await arrived
