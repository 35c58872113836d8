"""Passes the reported metrics of rank 0 to a tracker, without ever blocking the training.

A thread passes them to a process that writes them (`_tracker_process`). A tracker that is slow or
unreachable costs memory for `MOST_REPORTS` steps; then the oldest are dropped. Before it passes
reports on, the thread asks whether this process still trains with the others, so that a process
that was cut off for a while does not write steps that the others repeat.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol

from elasticjob_api import names

from elasticjob import _process
from elasticjob._agent_connection import AgentConnection
from elasticjob._trackers import TRACKERS, Failure, Report
from elasticjob.commit import why_not_commit

log = logging.getLogger("elasticjob")

MOST_REPORTS = 4096
_MOST_AT_ONCE = 256
_PAUSE_SECONDS = 1.0
_RETRY_SECONDS = 10.0
_CONFIRM_SECONDS = 5.0
_EXIT_SECONDS = 10.0
_LOOK_MILLISECONDS = 200
_READ_BYTES = 65_536
_MOST_REFUSALS = 2
"""Reports that an open run has refused as often are dropped."""


class Writer(Protocol):
    """What writes the reports: `TrackerProcess`."""

    def write(self, reports: list[Report]) -> dict[str, str]:
        """Write reports of one world, and return the failure; without reports, close the run."""

    def end(self) -> None:
        """End it at once."""


class TrackerProcess:
    """The process that writes; see `_tracker_process`.

    A tracker's library may fork. Its children keep the pipes open, so the end of a pipe does not
    show that this process has ended, and no call may wait for it alone.
    """

    def __init__(self) -> None:
        """Start it, with the modules that this process finds."""
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "elasticjob._tracker_process"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def write(self, reports: list[Report]) -> dict[str, str]:
        """Return the answer; raises OSError or ValueError when the process has ended."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        data = json.dumps(reports).encode() + b"\n"
        while data:
            self._wait(self._popen.stdin, select.POLLOUT)
            data = data[os.write(self._popen.stdin.fileno(), data[: select.PIPE_BUF]) :]
        line = b""
        while not line.endswith(b"\n"):
            self._wait(self._popen.stdout, select.POLLIN)
            part = os.read(self._popen.stdout.fileno(), _READ_BYTES)
            if not part:
                raise OSError("it has closed its output")
            line += part
        answer: dict[str, str] = json.loads(line)
        return answer

    def _wait(self, pipe: IO[bytes], event: int) -> None:
        """Wait until a pipe is ready; raise OSError if the process has ended."""
        poll = select.poll()
        poll.register(pipe, event)
        while not poll.poll(_LOOK_MILLISECONDS):
            if self._popen.poll() is not None:
                raise OSError(f"it has ended with exit code {self._popen.returncode}")

    def end(self) -> None:
        """Kill it, if it has not ended."""
        self._popen.kill()
        with contextlib.suppress(OSError), self._popen:
            pass  # closes the pipes, and waits for its end


class Tracking:
    """The reports of this process on their way to a tracker."""

    def __init__(
        self,
        name: str,
        *,
        why_not: Callable[[], str | None],
        start: Callable[[], Writer] = TrackerProcess,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        """Begin without a report; `why_not` says why this process may not write now, if so."""
        self._name = name
        self._why_not = why_not
        self._start = start
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Report] = deque()
        self._taken: list[Report] = []
        self._next_time = 0.0
        self._refusals = 0
        self._failure: str | None = None
        self._ended = False
        self._writer: Writer | None = None
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """The number of reports that were dropped."""

    def add(self, report: Report) -> None:
        """Add a report, which a thread passes on."""
        with self._changed:
            if self._ended:
                return
            self._waiting.append(report)
            if len(self._waiting) > MOST_REPORTS:
                self._waiting.popleft()
                self._drop(1, "the oldest reports are dropped, because it is slow or unreachable")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="elasticjob-tracker", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # this process may have no more threads now
                    return
                self._thread = thread
                atexit.register(self.close)
            if len(self._waiting) == 1:  # waking the thread at every step would slow the training
                self._changed.notify_all()

    def close(self, timeout: float = _EXIT_SECONDS) -> None:
        """Pass on the last reports and close the run.

        It takes at most `timeout` seconds, and no time if the run could not be opened.
        """
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(0 if self._failure == Failure.OPEN else timeout)
        if self._writer is not None:
            self._writer.end()
        if lost := self.dropped + len(self._taken) + len(self._waiting):
            log.warning("%s: %d reports of metrics were not written", self._name, lost)

    def _run(self) -> None:
        try:
            while self._take():
                failed = not self._pass_on(self._taken)
                if failed and self._ended:
                    return
                pause = 0.0 if len(self._waiting) >= _MOST_AT_ONCE else _PAUSE_SECONDS
                self._next_time = time.monotonic() + (self._retry_seconds if failed else pause)
            if self._writer is not None and self._why_not() is None:
                self._writer.write([])
        except (OSError, ValueError) as error:
            if not self._ended:
                self._give_up(f"its process has failed: {error}")

    def _take(self) -> bool:
        """Wait for reports, and take those of one world; False: there are no more."""
        with self._changed:
            while not self._ended:
                rest = self._next_time - time.monotonic()
                has_reports = bool(self._taken or self._waiting)
                if has_reports and rest <= 0:
                    break
                self._changed.wait(rest if has_reports else None)
            while (
                self._waiting
                and len(self._taken) < _MOST_AT_ONCE
                and self._waiting[0].round == (self._taken or self._waiting)[0].round
            ):
                self._taken.append(self._waiting.popleft())
            return bool(self._taken)

    def _pass_on(self, reports: list[Report]) -> bool:
        """Write reports; return whether they need not be written again."""
        if self._why_not() is not None:
            return False
        if self._writer is None:
            self._writer = self._start()
        answer = self._writer.write(reports)
        failure = answer.get("failure")
        if failure == Failure.UNUSABLE:
            self._give_up(answer["error"])
            return False
        self._refusals = self._refusals + 1 if failure == Failure.WRITE else 0
        if failure and not self._failure:
            log.warning(
                "%s cannot be written: %s. The training goes on; the next try is in %g s. "
                "Check the tracker's address and rights in the environment of this pod",
                self._name, answer["error"], self._retry_seconds,
            )  # fmt: skip
        self._failure = failure
        if failure and self._refusals < _MOST_REFUSALS:
            return False
        with self._changed:
            if failure:
                self._drop(len(reports), f"it refuses reports: {answer['error']}")
            self._taken = []
        return True

    def _drop(self, count: int, why: str) -> None:
        if not self.dropped:
            log.warning("%s: %s", self._name, why)
        self.dropped += count

    def _give_up(self, why: str) -> None:
        log.warning("metrics of this process are not written to %s: %s", self._name, why)
        with self._changed:
            self._ended = True
            self._taken = []
            self._waiting.clear()


@dataclass
class _OfProcess:
    """The tracking of a connection to the agent, of which each process has one.

    `start` is the place in the world of this process' start, which it may have left.
    """

    agent: AgentConnection | None = None
    tracking: Tracking | None = None
    start: _process.Place | None = None
    horovod: bool = False


_lock = threading.Lock()
_of_process = _OfProcess()


def track(agent: AgentConnection, step: int, metrics: Mapping[str, float]) -> None:
    """Pass metrics to the tracker that the job names, if this process has rank 0."""
    if _of_process.agent is not agent:
        with _lock:
            if _of_process.agent is not agent:
                _begin()
                _of_process.agent = agent
    tracking = _of_process.tracking
    if tracking is None:
        return
    place = _process.joined.place or _of_process.start
    assert place is not None
    if _of_process.horovod:
        place = _process.Place(place.round, _horovod("HOROVOD_RANK"), _horovod("HOROVOD_SIZE"))
    if place.rank == 0:
        now = time.time_ns() // 1_000_000
        tracking.add(Report(place.round, place.size, step, now, metrics))


def _begin() -> None:
    name = os.environ.get(names.ENV_TRACKER)
    if not name or not os.environ.get(names.ENV_JOB_UID):
        return
    if name not in TRACKERS:
        known = ", ".join(TRACKERS)
        log.warning("%s=%s: there is no such tracker; use %s", names.ENV_TRACKER, name, known)
        return
    # Reading the environment at each step would take longer than all the rest of a report.
    _of_process.start = _process.Place(_process.first_round(), _process.rank(), _process.size())
    _of_process.horovod = {"HOROVOD_RANK", "HOROVOD_SIZE"} <= set(os.environ)
    _of_process.tracking = Tracking(name, why_not=partial(why_not_commit, _CONFIRM_SECONDS))


def _horovod(variable: str) -> int:
    """Return a variable that Horovod changes with the world, which `os.environ` does not see."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return int(getenv(variable.encode()))


def _reset_after_fork() -> None:
    global _of_process, _lock
    _of_process = _OfProcess()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
