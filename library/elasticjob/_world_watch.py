"""Follows the announcements of worlds while the training computes.

A process of an ended world may wait in a collective for another one that has gone. A thread breaks
the group then. If processes only join, the present world trains on until they are ready.

Gloo forgets a receive that has begun when its connection ends in the middle of the message, and the
thread that waits for it waits on. Nothing ends that from outside, so such a process starts again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from elasticjob_api import drain_times, names

from elasticjob._agent_connection import AgentConnection, AgentError
from elasticjob._world_group import Group, Meeting
from elasticjob.progress import confirm_stop

_SHARE = 0.1
"""A process that computes, such as in a compiler, uses more of one CPU."""

_THREADS = Path("/proc/self/task")
_WAITS = {22, 232, 281, 441}
"""The system calls `epoll_wait`, `epoll_pwait` and `epoll_pwait2` of x86-64 and AArch64."""


def event_loops() -> frozenset[str]:
    """Return the threads that wait for events of files now; none if the kernel does not say it."""
    found = set()
    for thread in _THREADS.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int((thread / "syscall").read_text().split()[0]) in _WAITS:
                found.add(thread.name)
    return frozenset(found)


class Idleness:
    """The time for which all threads but this one and some event loops have computed nothing."""

    def __init__(self, loops: Collection[str] = ()) -> None:
        """Begin to measure, without these threads."""
        self._loops = loops
        self.restart()

    def restart(self) -> None:
        """Begin to measure."""
        self._since = time.monotonic()
        self._used = self._cpu_seconds()

    def seconds(self) -> float:
        """Return the seconds since this process has last computed."""
        seconds = time.monotonic() - self._since
        if self._cpu_seconds() - self._used > _SHARE * max(1.0, seconds):
            self.restart()
            return 0.0
        return seconds

    def _cpu_seconds(self) -> float:
        loops = sum(_thread_seconds(thread) for thread in self._loops)
        return time.process_time() - time.thread_time() - loops


def _thread_seconds(thread: str) -> float:
    """Return the CPU seconds of a thread; 0 if it has ended."""
    try:
        fields = (_THREADS / thread / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


log = logging.getLogger("elasticjob")

_POLL_SECONDS = 0.05
_NEWS_SECONDS = 1.0
_JOIN_SECONDS = 2.0
"""After the news of a next world, the time for which the others may still join the present one."""


class Watch(threading.Thread):
    """Watches one process' present world.

    Attributes:
        meeting: the present world, or None.
    """

    def __init__(self, agent: AgentConnection, group: Group, hand_over: Callable[[], None]) -> None:
        """Start; `hand_over` leaves the state to the next process, if this one starts again."""
        super().__init__(name="elasticjob-worlds", daemon=True)
        self._agent = agent
        self._group = group
        self._hand_over = hand_over
        self._closed = threading.Event()
        self._due_round = -1
        given = os.environ.get(names.ENV_DRAIN_SECONDS, drain_times.DEFAULT_DRAIN_SECONDS)
        self._patience = drain_times.own_end(float(given))
        self.meeting: Meeting | None = None
        self.start()

    def due(self, meeting: Meeting) -> bool:
        """Return whether this process should end its world at the next commit."""
        return self._due_round == meeting.round

    def close(self) -> None:
        """End."""
        self._closed.set()

    def run(self) -> None:
        """Watch until the end of the process."""
        watched: Meeting | None = None
        since = 0.0
        idle = Idleness()
        announced: dict[str, Any] = {"round": 0}
        try:
            while not self._closed.is_set():
                meeting = self.meeting
                if meeting is None or self._agent.notified_round <= meeting.round:
                    self._wait(meeting)
                    continue
                if watched is not meeting:
                    watched = meeting
                    since = time.monotonic()
                    idle = Idleness(meeting.event_loops)
                if announced["round"] < self._agent.notified_round:
                    announced = self._agent.call("announced_world").result()
                self._compare(meeting, announced, time.monotonic() - since)
                self._check_stuck(meeting, idle)
                self._closed.wait(_POLL_SECONDS)
        except AgentError:
            return  # the agent has ended, and this process ends with it

    def _wait(self, meeting: Meeting | None) -> None:
        if meeting is None or self._agent.stop_event.is_set():
            self._closed.wait(_POLL_SECONDS)
        else:
            self._agent.wait_for_world(meeting.round, _NEWS_SECONDS)

    def _compare(self, meeting: Meeting, announced: dict[str, Any], seconds: float) -> None:
        """Decide what the announced world means for the present one."""
        pods = {member["pod"] for member in announced["members"]}
        if not meeting.pods <= pods or (not meeting.joined and seconds > _JOIN_SECONDS):
            meeting.connections.cut()
        elif seconds > self._patience or self._are_ready(meeting, announced):
            self._due_round = meeting.round

    def _check_stuck(self, meeting: Meeting, idle: Idleness) -> None:
        """Start this process again if it waits in a broken group of an ended world."""
        if meeting.uses_storage:
            idle.restart()
        elif idle.seconds() < self._patience or not meeting.connections.broken():
            return
        elif self.meeting is meeting:
            log.error(
                "round %d: a collective has not ended with its connections, and this process has "
                "waited in it for %g s (half of drainSeconds): it starts again",
                meeting.round,
                self._patience,
            )
            self._hand_over()
            confirm_stop()
            os._exit(0)

    def _are_ready(self, meeting: Meeting, announced: dict[str, Any]) -> bool:
        """Return whether all that join wait for the others; only rank 0 knows it."""
        joining = announced["size"] - meeting.size
        if announced["rank"] != 0:
            return False
        try:
            return self._group.arrived(announced["round"]) >= int(joining)
        except RuntimeError:
            return False  # the store does not answer: the others wait for the limit only
