"""Requests for a large job leave room for those of a small one."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_operator.pod_executor import (
    MAX_BESIDE_SMALL_JOBS,
    MAX_CONCURRENT_CHANGES,
    RequestShares,
)

LARGE = 1000


class Requests:
    """Requests for a large job that never get an answer, and how many of them are sent."""

    def __init__(self, shares: RequestShares) -> None:
        self.sent = 0
        self._shares = shares

    async def send(self) -> None:
        async with self._shares.turn(LARGE):
            self.sent += 1
            await asyncio.Event().wait()

    async def send_many(self, number: int) -> None:
        """Try to send this number at once; return when each is sent or waits."""
        tasks = [asyncio.ensure_future(self.send()) for _ in range(number)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("changes_of_other", "sent"),
    [
        (0, MAX_CONCURRENT_CHANGES),  # it only writes its status
        (1, MAX_BESIDE_SMALL_JOBS),
        (MAX_CONCURRENT_CHANGES, MAX_BESIDE_SMALL_JOBS),
        (MAX_CONCURRENT_CHANGES + 1, MAX_CONCURRENT_CHANGES),  # it is large as well
    ],
)
async def test_a_large_job_sends_few_requests_at_once_while_a_small_one_is_served(
    changes_of_other: int, sent: int
) -> None:
    shares = RequestShares()
    requests = Requests(shares)
    with shares.serving(changes_of_other):
        await requests.send_many(MAX_CONCURRENT_CHANGES)
    assert requests.sent == sent


async def test_a_large_job_sends_as_many_as_before_when_the_small_one_has_failed() -> None:
    shares = RequestShares()
    requests = Requests(shares)
    with pytest.raises(ValueError, match="refused"), shares.serving(1):
        raise ValueError("refused")
    await requests.send_many(MAX_CONCURRENT_CHANGES)
    assert requests.sent == MAX_CONCURRENT_CHANGES


async def test_a_small_job_waits_for_no_other() -> None:
    shares = RequestShares()
    with shares.serving(1):
        large = [asyncio.ensure_future(Requests(shares).send()) for _ in range(LARGE)]
        async with asyncio.timeout(30), shares.turn(1):
            pass
        for task in large:
            task.cancel()
        await asyncio.gather(*large, return_exceptions=True)
