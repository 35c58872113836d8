"""Tests the operator's work queue.

A key has one worker at a time, failures are followed by pauses, and the queue ends in two ways.
"""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_kube.errors import Refused, TryLater
from elasticjob_operator.work_queue import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_IN_OUTAGE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Retry,
    WorkQueue,
    retry_after,
)


class Work:
    """Work that waits at a gate, and records the keys that are done."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.done: list[str] = []
        self.present: list[str] = []
        self.error: Exception | None = None
        self.queue: WorkQueue[str] = WorkQueue(self)

    async def __call__(self, key: str) -> float | None:
        assert key not in self.present, "two workers for one key"
        self.present.append(key)
        self.begun.set()
        try:
            await self.gate.wait()
        finally:
            self.present.remove(key)
        self.done.append(key)
        if self.error is not None:
            raise self.error
        return None


async def settled(work: Work, *expected: str) -> None:
    async with asyncio.timeout(10):
        while work.done != list(expected):
            await asyncio.sleep(0)


async def test_changes_during_the_work_cause_one_more_run_and_never_two_at_the_same_time() -> None:
    work = Work()
    work.queue.add("a")
    await work.begun.wait()
    for _ in range(5):
        work.queue.add("a")
    work.gate.set()
    await settled(work, "a", "a")
    await work.queue.close()
    assert work.done == ["a", "a"]


async def test_a_failed_key_is_retried_and_a_change_does_not_wait_for_its_pause() -> None:
    work = Work()
    work.error = Retry("not now", after=LONGEST_PAUSE_SECONDS)
    work.gate.set()
    work.queue.add("a")
    await settled(work, "a")
    work.queue.add("b")
    await settled(work, "a", "b")
    work.error = None
    work.queue.add("a")
    await settled(work, "a", "b", "a")
    await work.queue.close()


@pytest.mark.guarantee("api-server-refuses-for-now")
@pytest.mark.parametrize(
    "error", [Retry("not now"), Retry("at once", after=0.0), ZeroDivisionError()]
)
async def test_the_pause_after_a_failure_grows_for_every_error(error: Exception) -> None:
    queue = Work().queue
    pauses = [queue._pause("a", error) for _ in range(30)]
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert queue._pause("b", Retry("the server asks for more", after=5.0)) == 5.0


@pytest.mark.guarantee("api-server-outage")
async def test_after_an_outage_of_any_length_no_job_waits_long() -> None:
    queue = Work().queue
    outage = TryLater(0, "", "no answer")
    refusal = Refused(403, "Forbidden", "no")
    assert (
        max(queue._pause("a", retry_after(outage)) for _ in range(30))
        == LONGEST_PAUSE_IN_OUTAGE_SECONDS
    )
    assert max(queue._pause("b", retry_after(refusal)) for _ in range(30)) == LONGEST_PAUSE_SECONDS


@pytest.mark.guarantee("unforeseen-operator-error")
async def test_the_end_of_each_run_is_reported_with_its_error() -> None:
    work = Work()
    ends = []
    work.queue = WorkQueue(work, lambda key, error: ends.append((key, error)))
    work.gate.set()
    for error in (None, ZeroDivisionError("bug"), Retry("not now"), None):
        work.error = error
        work.queue.add("a")
        await settled(work, *["a"] * (len(ends) + 1))
        await asyncio.sleep(0)  # the end of the task is reported after its work
        assert ends[-1] == ("a", error)
    assert len(ends) == 4
    await work.queue.close()


async def test_the_record_of_a_failure_names_its_key(caplog: pytest.LogCaptureFixture) -> None:
    async def work(key: str) -> None:
        raise Retry("the API server does not answer")

    queue: WorkQueue[str] = WorkQueue(work, log_fields=lambda key: {"job": key})
    queue.add("ns/job")
    await queue.close()
    await asyncio.sleep(0)
    assert [vars(record)["job"] for record in caplog.records] == ["ns/job"]


async def test_closing_finishes_running_work_and_accepts_no_more_keys() -> None:
    work = Work()
    work.queue.add("a")
    await work.begun.wait()
    work.queue.add("a")
    closing = asyncio.create_task(work.queue.close())
    await asyncio.sleep(0)
    work.queue.add("b")
    work.gate.set()
    await closing
    assert work.done == ["a"]


async def test_aborting_cancels_running_work() -> None:
    work = Work()
    work.queue.add("a")
    await work.begun.wait()
    work.queue.add("a")
    await work.queue.abort()
    assert work.present == []
    work.gate.set()
    work.queue.add("a")
    assert work.done == []


async def test_a_key_whose_work_was_cancelled_can_be_added_again() -> None:
    work = Work()
    work.queue.add("a")
    await work.begun.wait()
    work.queue.add("a")
    (task,) = work.queue._tasks.values()
    task.cancel()
    await asyncio.wait([task])
    work.gate.set()
    work.queue.add_after("a", 0)
    await settled(work, "a")
