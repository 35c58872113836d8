"""The blocking client runs coroutines, also in programs that run an event loop."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest
from elasticjob_client.aio import AsyncClient
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.blocking import LoopThread
from elasticjob_client.client import Client, Job
from elasticjob_client.errors import ClientError


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop(nothing)


async def nothing() -> None:
    pass


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_is_done_in_the_other_thread_and_its_error_is_raised_here(loop: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    assert loop.run(thread_name()) == "elasticjob-client"
    with pytest.raises(KeyError):
        loop.run(fail())


async def test_it_works_while_a_loop_runs_in_this_thread(loop: LoopThread) -> None:
    assert loop.run(thread_name()) == "elasticjob-client"


def test_items_are_yielded_one_by_one_and_an_early_stop_closes_the_generator(
    loop: LoopThread,
) -> None:
    closed = []

    async def count(last: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(last):
                yield number
        finally:
            closed.append(last)

    assert list(loop.iterate(count(3))) == [0, 1, 2]
    for number in loop.iterate(count(9)):
        if number == 1:
            break
    assert closed == [3, 9]


def test_stop_runs_the_last_work_once_also_when_called_in_its_own_thread() -> None:
    done = []

    async def last() -> None:
        done.append(threading.current_thread().name)

    first = LoopThread()
    second = LoopThread()
    first.stop(last)
    first.stop(last)
    assert done == ["elasticjob-client"]

    async def stop_itself() -> None:
        second.stop(last)

    second.run(stop_itself())
    second._thread.join(20)
    assert (done, second._thread.is_alive()) == (["elasticjob-client"] * 2, False)


def test_a_stopped_loop_refuses_work_and_leaves_no_coroutine_unawaited(
    recwarn: pytest.WarningsRecorder,
) -> None:
    stopped = LoopThread()
    stopped.stop(nothing)
    with pytest.raises(ClientError, match="the client is closed"):
        stopped.run(nothing())
    gc.collect()
    assert not recwarn.list


def test_closing_the_client_raises_an_error_in_waiting_threads() -> None:
    made = LoopThread()
    begun = threading.Event()
    errors = []

    async def wait_forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        with pytest.raises(ClientError, match="was closed") as caught:
            made.run(wait_forever())
        errors.append(caught.value)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(10)
    made.stop(nothing)
    waiting.join(10)
    assert errors


def test_it_can_be_neither_copied_nor_pickled(loop: LoopThread) -> None:
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="get the job by its name"):
            attempt(loop)


def test_closing_the_client_closes_open_generators() -> None:
    made = LoopThread()
    closed = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    items = made.iterate(numbers())
    assert next(items) == 1
    made.stop(nothing)
    assert closed
    items.close()


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), [(Client, AsyncClient), (Job, AsyncJob)], ids=["client", "job"]
)
def test_the_blocking_classes_have_the_methods_and_parameters_of_the_asynchronous_ones(
    blocking: type, asynchronous: type
) -> None:
    for name, method in vars(asynchronous).items():
        if name.startswith("_") or name in ("keep", "seen_within", "phase", "progress"):
            continue
        expected = inspect.signature(method).parameters
        assert inspect.signature(getattr(blocking, name)).parameters == expected, name
        assert getattr(blocking, name).__doc__
