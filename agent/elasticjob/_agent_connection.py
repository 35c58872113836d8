"""The connection to the agent. Training never waits on it: threads connect, write and read.

A report that has not been written yet is merged with the next one, so the newest step is never the one that is lost,
and an agent that does not read costs no memory. Reports are written a few times a second at most: waking the writer at
every step would take the interpreter away from the training.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from elasticjob_api.limits import MAX_METRICS

REPORT_SECONDS = 0.05

_READ_BYTES = 65536
_LAST_WORDS_SECONDS = 2.0
_GONE = "the agent is gone"


class AgentError(Exception):
    """The agent or the master has refused a call, or the agent is gone."""


class Connection:
    """One connection, of one process."""

    def __init__(self, path: str) -> None:
        """Begin to connect to the socket at a path."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._changed = threading.Condition()
        self._lines: deque[dict[str, Any]] = deque()
        self._report: dict[str, Any] = {}
        self._reported_at = time.monotonic()
        self._step: int | None = None
        self._due = 0.0
        self._calls: dict[int, Future[dict[str, Any]]] = {}
        self._number = 0
        self._idle = False
        self._writing = False
        self._gone = False
        self._listening = False
        self.stop = False
        """The agent has asked for a stop."""
        self.confirmed = False
        """This process has answered that."""
        try:
            threading.Thread(target=self._write, name="elasticjob-write", daemon=True).start()
        except RuntimeError:  # no thread can be had any more, such as at the interpreter's end
            self._lose()

    def report(
        self, step: int, total: int | None, samples: float, metrics: Mapping[str, float], compute_seconds: float
    ) -> None:
        """Have a step reported, soon and not in this thread."""
        now = time.monotonic()
        with self._changed:
            report = self._report or {"steps": 0, "samples": 0.0, "seconds": 0.0, "compute_seconds": 0.0, "metrics": {}}
            report["step"], report["total"], report["time"] = step, total, time.time()
            if self._step is not None and step > self._step:
                report["steps"] += step - self._step
            report["samples"] += samples
            report["seconds"] += now - self._reported_at
            report["compute_seconds"] += compute_seconds
            if metrics:
                _merge(report["metrics"], metrics)
            self._report, self._reported_at, self._step = report, now, step
            if self._idle:
                self._changed.notify_all()

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask the agent; the answer comes in its own time."""
        answer: Future[dict[str, Any]] = Future()
        with self._changed:
            if self._gone:
                answer.set_exception(AgentError(_GONE))
                return answer
            self._number += 1
            self._calls[self._number] = answer
            self._lines.append({"id": self._number, "call": name, **fields})
            self._changed.notify_all()
        return answer

    def listen(self) -> bool:
        """Tell whether a stop was asked for; the first call tells the agent that this process listens."""
        if not self._listening:
            self._listening = True
            self.tell({"stoppable": True})
        return self.stop

    def tell(self, message: dict[str, Any]) -> None:
        """Have a message sent."""
        with self._changed:
            self._lines.append(message)
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        """Wait until all is written, or the time is over."""
        with self._changed:
            self._due = 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._gone or not (self._lines or self._report or self._writing), timeout)

    def abandon(self) -> None:
        """Close this process' copy of another one's connection."""
        self._socket.close()

    def _write(self) -> None:
        try:
            self._socket.connect(self._path)
            threading.Thread(target=self._read, name="elasticjob-read", daemon=True).start()
            while messages := self._next():
                self._socket.sendall("".join(json.dumps(message) + "\n" for message in messages).encode())
        except (OSError, RuntimeError):
            self._lose()

    def _next(self) -> list[dict[str, Any]]:
        """Wait for what is to be written: a report when it is due, anything else at once. Nothing: all is over."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            while not (self._gone or self._lines):
                rest = self._due - time.monotonic()
                if self._report and rest <= 0:
                    break
                self._idle = not self._report
                self._changed.wait(None if self._idle else rest)
            self._idle = False
            if self._gone:
                return []
            messages = [*([self._report] if self._report else []), *self._lines]
            self._lines.clear()
            self._report, self._due, self._writing = {}, time.monotonic() + REPORT_SECONDS, True
            return messages

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := self._socket.recv(_READ_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            pass
        self._lose()

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("stop"):
            self.stop = True
            return
        with self._changed:
            answer = self._calls.pop(message.get("id") or 0, None)
        if answer is None:
            return
        if "error" in message:
            answer.set_exception(AgentError(message["error"]))
        else:
            answer.set_result(message["result"])

    def _lose(self) -> None:
        with self._changed:
            self._gone = True
            calls = list(self._calls.values())
            self._calls.clear()
            self._changed.notify_all()
        for answer in calls:
            answer.set_exception(AgentError(_GONE))


def _merge(kept: dict[str, float], fresh: Mapping[str, float]) -> None:
    """Take fresh metrics; of too many, the newest names stay."""
    for name in fresh:
        kept.pop(name, None)
    kept.update(fresh)
    while len(kept) > MAX_METRICS:
        del kept[next(iter(kept))]


class _Present:
    """This process' connection, made at the first use. None: there is no agent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made = False
        self.connection: Connection | None = None


_present = _Present()


def connection() -> Connection | None:
    """Return this process' connection; None when there is no agent."""
    present = _present
    if not present.made:
        with present.lock:
            if not present.made:
                path = os.environ.get("ELASTICJOB_SOCKET")
                present.connection = Connection(path) if path else None
                present.made = True
    return present.connection


def _forked() -> None:
    """Begin anew in a forked process, such as a data loader's: threads and locks of its parent are not there."""
    global _present
    older, _present = _present.connection, _Present()
    if older is not None:
        older.abandon()


def _last_words() -> None:
    if _present.connection is not None:
        _present.connection.flush(_LAST_WORDS_SECONDS)


os.register_at_fork(after_in_child=_forked)
atexit.register(_last_words)
