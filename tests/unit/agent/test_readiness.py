"""The measurement between two agents: only for agents of the job, one at a time, within bounds."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_agent.readiness import (
    BLOCK_BYTES,
    MAX_CONNECTIONS,
    MEASURE_SECONDS,
    Readiness,
    begin_watch,
    measure,
)
from elasticjob_api import names

from tests.support.wait import SECONDS


async def test_agents_of_the_job_measure_one_after_the_other(network: str) -> None:
    readiness = Readiness(f"{network}.7", "token")
    await readiness.announce()
    links = await asyncio.gather(*(measure(f"{network}.7", "token") for _ in range(3)))
    readiness.close()
    for link in links:
        assert link is not None
        assert 0 < link.round_trip_seconds < MEASURE_SECONDS
        assert link.bytes_per_second > BLOCK_BYTES / MEASURE_SECONDS


@pytest.mark.parametrize("token", ["another", None])
async def test_who_does_not_know_the_token_is_disconnected(network: str, token: str | None) -> None:
    readiness = Readiness(f"{network}.7", "token")
    await readiness.announce()
    assert await measure(f"{network}.7", token) is None
    assert await measure(f"{network}.7", "token") is not None
    readiness.close()
    assert await measure(f"{network}.7", "token") is None


async def test_the_oldest_stranger_makes_room_for_an_agent_of_the_job(network: str) -> None:
    readiness = Readiness(f"{network}.7", "token")
    await readiness.announce()
    streams = []
    async with asyncio.timeout(SECONDS):
        for _ in range(MAX_CONNECTIONS):
            streams.append(await asyncio.open_connection(f"{network}.7", names.AGENT_READY_PORT))
            assert await streams[-1][0].read(100), "no greeting"
        assert await measure(f"{network}.7", "token") is not None
        assert await streams[0][0].read(100) == b"", "it said nothing"
        for _ in range(MAX_CONNECTIONS):
            streams.append(await asyncio.open_connection(f"{network}.7", names.AGENT_READY_PORT))
        assert await streams[-1][0].read(100), "a probe is accepted"
    for _, writer in streams:
        writer.close()
    readiness.close()


async def test_the_connections_of_watchers_stay_open_and_are_no_strangers(network: str) -> None:
    readiness = Readiness(f"{network}.7", "token")
    await readiness.announce()
    streams = [
        await asyncio.open_connection(f"{network}.7", names.AGENT_READY_PORT)
        for _ in range(MAX_CONNECTIONS)
    ]
    async with asyncio.timeout(SECONDS):
        for reader, writer in streams[1:]:
            await begin_watch(reader, writer, "token")
        await begin_watch(*streams[0], "another")
        assert await streams[0][0].read() == b"", "it does not know the token"
        assert await measure(f"{network}.7", "token") is not None
    assert not any(reader.at_eof() for reader, _ in streams[1:])
    for _, writer in streams:
        writer.close()
    readiness.close()


async def test_the_end_of_an_agent_that_is_watched_is_not_logged_as_an_error(network: str) -> None:
    """asyncio of Python 3.11.7 and 3.12.1 logs a connection's task that ends as cancelled."""
    readiness = Readiness(f"{network}.7", "token")
    await readiness.announce()
    before = asyncio.all_tasks()
    streams = await asyncio.open_connection(f"{network}.7", names.AGENT_READY_PORT)
    await begin_watch(*streams, "token")
    [served] = asyncio.all_tasks() - before
    served.cancel()
    await asyncio.wait([served])
    assert not served.cancelled()
    streams[1].close()
    readiness.close()
