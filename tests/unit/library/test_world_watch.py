"""A process that only waits is told from one that computes, also if an event loop of it spins."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator

from elasticjob._world_watch import Idleness, event_loops

from tests.support.wait import wait_until


@contextlib.contextmanager
def event_loop() -> Iterator[tuple[str, int]]:
    """Run a thread that waits for a descriptor, and takes nothing from it; yield both.

    After the first byte it spins until the second one, as Gloo's loop does after a broken message.
    """
    reader, writer = os.pipe()
    poll = select.epoll()
    poll.register(reader, select.EPOLLIN)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            poll.poll()

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield str(thread.native_id), writer
    finally:
        ended.set()
        os.write(writer, b".")
        thread.join()
        poll.close()
        os.close(reader)
        os.close(writer)


def test_a_spinning_event_loop_is_left_out_and_any_other_thread_counts() -> None:
    with event_loop() as (thread, writer):
        wait_until("the thread waits", event_loops, lambda found: thread in found)
        assert str(threading.get_native_id()) not in event_loops()
        waits = Idleness(event_loops())
        computes = Idleness()
        os.write(writer, b".")
        wait_until("its CPU time counts", computes.seconds, lambda seconds: not seconds)
        assert waits.seconds() > 0
        wait_until("it waits for a second", waits.seconds, lambda seconds: seconds > 1)
    ended = Idleness({thread})
    assert ended.seconds() >= 0, "a thread that has ended is no error"
