"""Connects a training process to its agent, without ever blocking the training.

Threads connect, write and read. A step report that has not been written is merged with the next
one, so no step is lost, and an agent that does not read costs no memory. Reports are written at
most every `REPORT_SECONDS`: waking the writer at every step would slow the training.
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
from operator import index
from typing import Any

from elasticjob_api import names
from elasticjob_api.limits import MAX_METRICS

from elasticjob import _process, _stacks

REPORT_SECONDS = 0.2

_READ_BYTES = 65536
_EXIT_FLUSH_SECONDS = 2.0
_AGENT_UNREACHABLE = "the agent is unreachable"


class AgentError(Exception):
    """The agent or the master has refused a call, or the agent is unreachable.

        try:
            elasticjob.KeyValue().set("leader", b"rank 0")
        except elasticjob.AgentError as error:
            print(f"not stored: {error}")

    The message says why.
    """


class AgentConnection:
    """One process' connection to the agent."""

    def __init__(self, path: str) -> None:
        """Start a thread that connects to the socket at a path."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._changed = threading.Condition()
        self._introduction = "".join(map(_line, _introduction()))
        self._lines: deque[str] = deque()
        self._report: dict[str, Any] = {}
        self._reported_at = time.monotonic()
        self._step: int | None = None
        self._save_seconds = 0.0
        self._saved_bytes = 0
        self._next_report_time = 0.0
        self._pending_calls: dict[int, Future[dict[str, Any]]] = {}
        self._last_call_id = 0
        self._writer_idle = False
        self._writing = bool(self._introduction)
        self._disconnected = False
        self._announced_stoppable = False
        self.stop_event = threading.Event()
        """Set when the agent has asked this process to stop."""
        self.leaving = False
        """This member leaves the job when its processes have stopped."""
        self.stop_confirmed = False
        """This process has confirmed that it ends because of a stop."""
        self.notified_round = 0
        """The round of the latest world that the agent has announced since this process started;
        0: none.
        """
        try:
            threading.Thread(target=self._write, name="elasticjob-write", daemon=True).start()
        except RuntimeError:  # no thread can be started any more, such as at the interpreter's end
            self._disconnect()

    def report(
        self,
        step: int,
        total: int | None,
        samples: float,
        metrics: Mapping[str, float],
        compute_seconds: float,
    ) -> None:
        """Report a step, which another thread writes soon."""
        now = time.monotonic()
        with self._changed:
            report = self._report or {
                "steps": 0,
                "samples": 0.0,
                "seconds": 0.0,
                "compute_seconds": 0.0,
                "save_seconds": 0.0,
                "metrics": {},
            }
            report["step"] = step
            report["total"] = total
            if self._step is not None and step > self._step:
                report["steps"] += step - self._step
            report["samples"] += samples
            report["seconds"] += now - self._reported_at
            report["compute_seconds"] += compute_seconds
            report["save_seconds"] += self._save_seconds
            report["saved_bytes"] = self._saved_bytes
            self._save_seconds = 0.0
            if metrics:
                _merge_metrics(report["metrics"], metrics)
            self._report = report
            self._reported_at = now
            self._step = step
            if self._writer_idle:
                self._changed.notify_all()

    def saved(self, seconds: float, size: int) -> None:
        """Add the time of writes to the storage, and the bytes there, to the next report."""
        with self._changed:
            self._save_seconds += seconds
            self._saved_bytes = size

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Call the agent.

        Returns its answer as a future, which raises AgentError if the call is refused. Raises
        TypeError if a value of a field cannot be sent.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._changed:
            if self._disconnected:
                answer.set_exception(AgentError(_AGENT_UNREACHABLE))
                return answer
            self._last_call_id += 1
            self._lines.append(_line({"id": self._last_call_id, "call": name, **fields}))
            self._pending_calls[self._last_call_id] = answer
            self._changed.notify_all()
        return answer

    def should_stop(self) -> bool:
        """Return whether a stop was requested.

        The first call informs the agent that this process listens for stops.
        """
        if not self._announced_stoppable:
            self._announced_stoppable = True
            self.send({"stoppable": True})
        return self.stop_event.is_set()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, which another thread writes."""
        with self._changed:
            self._lines.append(_line(message))
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        """Wait until everything is written, at most `timeout` seconds."""
        with self._changed:
            self._next_report_time = 0.0
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._disconnected or not (self._lines or self._report or self._writing),
                timeout,
            )

    def wait_for_world(self, after: int, timeout: float) -> None:
        """Wait at most `timeout` seconds for a world after that of a round, or for a stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.notified_round > after or self.stop_event.is_set() or self._disconnected
                ),
                timeout,
            )

    def close_inherited_socket(self) -> None:
        """Close the copy of the parent's socket in a forked process."""
        self._socket.close()

    def _write(self) -> None:
        try:
            self._socket.connect(self._path)
            threading.Thread(target=self._read, name="elasticjob-read", daemon=True).start()
            # Before any report: the agent reads which process a report is of from this.
            self._socket.sendall(self._introduction.encode())
            while lines := self._wait_for_lines():
                self._socket.sendall("".join(lines).encode())
        except (OSError, RuntimeError):
            self._disconnect()

    def _wait_for_lines(self) -> list[str]:
        """Wait for lines to write: reports when they are due, others at once.

        Returns an empty list when the connection has ended.
        """
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            while not (self._disconnected or self._lines):
                rest = self._next_report_time - time.monotonic()
                if self._report and rest <= 0:
                    break
                self._writer_idle = not self._report
                self._changed.wait(None if self._writer_idle else rest)
            self._writer_idle = False
            if self._disconnected:
                return []
            lines = [*([_line(self._report)] if self._report else ()), *self._lines]
            self._lines.clear()
            self._report = {}
            self._next_report_time = time.monotonic() + REPORT_SECONDS
            self._writing = True
            return lines

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := self._socket.recv(_READ_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._receive(json.loads(line))
        except OSError:
            pass
        self._disconnect()

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("stop") or "world_changed" in message:
            with self._changed:
                self.leaving = self.leaving or bool(message.get("leaving"))
                if message.get("stop"):
                    self.stop_event.set()
                self.notified_round = max(self.notified_round, message.get("world_changed", 0))
                self._changed.notify_all()
            return
        if "stacks" in message:
            self.send({"stacks": message["stacks"], **_stacks.threads()})
            return
        with self._changed:
            answer = self._pending_calls.pop(message.get("id") or 0, None)
        if answer is None:
            return
        if "error" in message:
            answer.set_exception(AgentError(message["error"]))
        else:
            answer.set_result(message["result"])

    def _disconnect(self) -> None:
        with self._changed:
            self._disconnected = True
            calls = list(self._pending_calls.values())
            self._pending_calls.clear()
            self._changed.notify_all()
        for answer in calls:
            answer.set_exception(AgentError(_AGENT_UNREACHABLE))


def _line(message: dict[str, Any]) -> str:
    """Return a message as the agent reads it. Whole numbers of other types, such as numpy's, count.

    It is made where the message is, because an error in the thread that writes would end that.
    """
    return json.dumps(message, default=index) + "\n"


def _introduction() -> list[dict[str, Any]]:
    """Return the first messages: this process among several of its pod, and its joined world."""
    messages: list[dict[str, Any]] = []
    if _process.local_size() > 1:
        messages.append({"process": _process.local_rank(), "of": _process.local_size()})
    if _process.joined.place is not None:
        messages.append({"world": _process.joined.place.round})
    return messages


def _merge_metrics(metrics: dict[str, float], newer: Mapping[str, float]) -> None:
    """Merge newer metrics into `metrics`; of more than MAX_METRICS names, the newest stay."""
    for name in newer:
        metrics.pop(name, None)
    metrics.update(newer)
    while len(metrics) > MAX_METRICS:
        del metrics[next(iter(metrics))]


class _ProcessConnection:
    """This process' connection, opened at the first use; None without an agent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opened = False
        self.connection: AgentConnection | None = None


_process_connection = _ProcessConnection()


def agent_connection() -> AgentConnection | None:
    """Return this process' connection to its agent; None when there is no agent."""
    holder = _process_connection
    if not holder.opened:
        with holder.lock:
            if not holder.opened:
                path = os.environ.get(names.ENV_SOCKET)
                holder.connection = AgentConnection(path) if path else None
                holder.opened = True
    return holder.connection


def reset_after_fork() -> None:
    """Reset the connection in a forked process, which lacks the parent's threads."""
    global _process_connection
    inherited = _process_connection.connection
    _process_connection = _ProcessConnection()
    if inherited is not None:
        inherited.close_inherited_socket()


def flush_at_exit() -> None:
    """Write the remaining messages before the interpreter ends."""
    if _process_connection.connection is not None:
        _process_connection.connection.flush(_EXIT_FLUSH_SECONDS)


os.register_at_fork(after_in_child=reset_after_fork)
atexit.register(flush_at_exit)
