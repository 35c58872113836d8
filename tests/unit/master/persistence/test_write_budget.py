"""Tests when the state is written.

It is written soon if a request waits for it, and rarely otherwise. The rate is bounded.
"""

from __future__ import annotations

import asyncio
import math

import pytest
from elasticjob_master.persistence.state_writer import (
    LEAST_SECONDS,
    LONGEST_UNWAITED_SECONDS,
    StateWriter,
    WriteBudget,
)
from elasticjob_master.persistence.store import StoreFailed
from elasticjob_master.persistence.stored_state import EncodedState
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.virtual_time import START, in_virtual_time

PAUSE = 1.0
BURST = 8
ANSWER = 0.01


class FakeStore:
    """A store that takes some time for each write and records the times of the writes."""

    shared = False
    largest: int | None = None

    def __init__(self, *, burst: float = BURST) -> None:
        self.pause = PAUSE
        self.burst = burst
        self.writes: list[float] = []
        self.fails = False

    async def claim(self) -> bytes | None:
        return None

    async def is_kept(self) -> bool:
        return True

    async def save(self, data: bytes) -> None:
        await asyncio.sleep(ANSWER)
        if self.fails:
            raise StoreFailed("the API server does not answer")
        self.writes.append(now())


def now() -> float:
    return asyncio.get_running_loop().time() - START


class RunningWriter:
    """A running state writer of such a store."""

    def __init__(self, **options: float) -> None:
        self.store = FakeStore(**options)
        self.state_writer = StateWriter(self.store, lambda: EncodedState(b"state"))
        self.task = asyncio.create_task(self.state_writer.run())

    async def change(self, *, urgent: bool = False) -> None:
        """Change something and wait until it is stored."""
        self.state_writer.changed()
        await self.state_writer.wait_until_stored(self.state_writer.changes, urgent=urgent)


@in_virtual_time
async def test_barriers_in_a_row_are_stored_quickly_until_the_budget_is_used_up() -> None:
    kept = RunningWriter()
    took = []
    for _ in range(BURST + 4):
        began = now()
        await kept.change()
        took.append(now() - began)
    assert all(each <= ANSWER + LEAST_SECONDS + 1e-3 for each in took[:BURST]), took
    assert all(0.5 < each <= PAUSE + ANSWER for each in took[BURST:]), took


@in_virtual_time
async def test_a_world_changes_quickly_while_the_reports_of_the_training_use_up_the_budget() -> (
    None
):
    kept = RunningWriter()

    async def report() -> None:
        while True:
            await kept.change()

    reports = asyncio.create_task(report())
    for _ in range(3):
        await asyncio.sleep(30 * PAUSE)
        took = []
        for _ in range(5):
            began = now()
            await kept.change(urgent=True)
            took.append(now() - began)
        assert all(each <= 2 * (ANSWER + LEAST_SECONDS) for each in took), took
    reports.cancel()
    assert len(kept.store.writes) <= now() / PAUSE + BURST + 15


@in_virtual_time
async def test_the_budget_fills_again_with_time() -> None:
    kept = RunningWriter()
    for _ in range(BURST):
        await kept.change()
    await asyncio.sleep(3 * PAUSE)
    began = now()
    for _ in range(3):
        await kept.change()
    assert now() - began < PAUSE / 2


@in_virtual_time
async def test_changes_without_waiting_requests_are_written_at_once_and_then_once_in_a_pause() -> (
    None
):
    kept = RunningWriter()
    for _ in range(1000):
        kept.state_writer.changed()
        await asyncio.sleep(0.01)
    between = [
        later - earlier
        for earlier, later in zip(kept.store.writes, kept.store.writes[1:], strict=False)
    ]
    assert kept.store.writes[0] == pytest.approx(ANSWER)
    assert between == pytest.approx([PAUSE + ANSWER] * 9, abs=1e-3)


@in_virtual_time
async def test_a_request_does_not_wait_for_the_pause_of_an_earlier_change() -> None:
    kept = RunningWriter()
    await kept.change()
    kept.state_writer.changed()
    await asyncio.sleep(PAUSE / 4)
    assert len(kept.store.writes) == 1, "nobody waits for the second one"
    began = now()
    await kept.state_writer.wait_until_stored(kept.state_writer.changes)
    assert now() - began <= ANSWER + 1e-3


@in_virtual_time
async def test_simultaneous_changes_are_stored_together() -> None:
    kept = RunningWriter()

    async def one(number: int) -> None:
        await asyncio.sleep(number * 0.0001)
        await kept.change()

    await asyncio.gather(*map(one, range(100)))
    assert len(kept.store.writes) <= 3


@in_virtual_time
async def test_a_store_without_a_budget_is_always_quick_for_waiting_requests_only() -> None:
    kept = RunningWriter(burst=math.inf)
    for _ in range(100):
        await kept.change()
    assert now() < 100 * (ANSWER + LEAST_SECONDS) + 1
    kept.state_writer.changed()
    written = len(kept.store.writes)
    await asyncio.sleep(PAUSE / 2)
    assert len(kept.store.writes) == written


@in_virtual_time
async def test_a_store_that_fails_is_tried_once_a_second_and_then_all_is_stored() -> None:
    kept = RunningWriter()
    kept.store.fails = True
    waiting = asyncio.create_task(kept.change())
    await asyncio.sleep(3)
    kept.store.fails = False
    await waiting
    assert len(kept.store.writes) == 1
    assert 3 < now() < 4.1


WAITING = st.sampled_from(["", "usual", "urgent"])
REQUESTS = st.lists(st.tuples(st.floats(0, 3), WAITING, st.floats(0, 0.05)), max_size=60)


@given(REQUESTS)
def test_in_no_time_there_are_more_writes_than_both_budgets_and_six_in_five_pauses(
    requests: list[tuple[float, str, float]],
) -> None:
    budget = WriteBudget(pause=PAUSE, burst=BURST)
    at = 5.0
    writes = list[float]()
    for idle, waiting, snapshot_seconds in requests:
        at += idle
        waits = {"waited_for": waiting != "", "urgent": waiting == "urgent"}
        at += budget.seconds_until_write(at, **waits)
        assert budget.seconds_until_write(at, **waits) <= 1e-9
        if writes:
            assert at - writes[-1] >= LEAST_SECONDS - 1e-9
        writes.append(at)
        budget.record_write(at, snapshot_seconds=snapshot_seconds)
    for first in range(len(writes)):
        for last in range(first, len(writes)):
            seconds = writes[last] - writes[first]
            assert last - first + 1 <= 2 * BURST + 1.2 * seconds / PAUSE + 1e-6


@given(st.floats(0, 10), st.booleans())
def test_taking_snapshots_has_a_tenth_of_the_time_at_most(
    snapshot_seconds: float, waited_for: bool
) -> None:
    budget = WriteBudget(pause=PAUSE, burst=math.inf)
    budget.record_write(100.0, snapshot_seconds=snapshot_seconds)
    assert budget.seconds_until_write(100.0, waited_for=waited_for) >= 9 * snapshot_seconds - 1e-6


@given(st.floats(0, 0.5))
def test_snapshots_of_a_large_job_that_nobody_waits_for_are_rare_and_never_late(
    snapshot_seconds: float,
) -> None:
    budget = WriteBudget(pause=PAUSE, burst=math.inf)
    budget.record_write(100.0, snapshot_seconds=snapshot_seconds)
    waits = budget.seconds_until_write(100.0, waited_for=False)
    assert waits >= min(49 * snapshot_seconds, LONGEST_UNWAITED_SECONDS) - 1e-6
    assert waits <= LONGEST_UNWAITED_SECONDS + 1e-6
