"""The connection to the agent. Training never waits on it: a thread writes, another one reads.

A report that has not been written yet is merged with the next one, so the newest step is never the one that is lost.
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

_READ_SIZE = 65536
_LAST_WORDS_SECONDS = 2.0


class AgentError(Exception):
    """The agent or the master has refused a call, or the agent is gone."""


class Connection:
    """One connection, of one process."""

    def __init__(self, path: str) -> None:
        """Connect to the socket at a path."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._changed = threading.Condition()
        self._lines: deque[dict[str, Any]] = deque()
        self._report: dict[str, Any] | None = None
        self._reported = time.monotonic()
        self._calls: dict[int, Future[dict[str, Any]]] = {}
        self._number = 0
        self._writing = False
        self._stoppable = False
        self._gone = False
        self.stop = False
        """The agent has asked for a stop."""
        for target in (self._read, self._write):
            threading.Thread(target=target, name=f"elasticjob{target.__name__}", daemon=True).start()
        atexit.register(self.flush, _LAST_WORDS_SECONDS)

    def report(self, step: int, total: int | None, samples: float, metrics: Mapping[str, float]) -> None:
        """Have a step reported, at once but not in this thread."""
        now = time.monotonic()
        with self._changed:
            older = self._report or {"samples": 0.0, "seconds": 0.0, "metrics": {}}
            self._report = {
                "step": step,
                "total": total,
                "samples": older["samples"] + samples,
                "seconds": older["seconds"] + now - self._reported,
                "metrics": {**older["metrics"], **metrics},
                "time": time.time(),
            }
            self._reported = now
            self._changed.notify_all()

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask the agent; the answer comes in its own time."""
        answer: Future[dict[str, Any]] = Future()
        with self._changed:
            if self._gone:
                answer.set_exception(AgentError("the agent is gone"))
                return answer
            self._number += 1
            self._calls[self._number] = answer
            self._lines.append({"id": self._number, "call": name, **fields})
            self._changed.notify_all()
        return answer

    def listen(self) -> bool:
        """Tell whether a stop was asked for; the first call tells the agent that this process listens."""
        if not self._stoppable:
            self._stoppable = True
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
            self._changed.wait_for(lambda: self._gone or not (self._lines or self._report or self._writing), timeout)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._gone or self._lines or self._report)
                if self._gone:
                    return
                messages = list(self._lines)
                if self._report is not None:
                    messages.insert(0, self._report)
                self._lines.clear()
                self._report, self._writing = None, True
            try:
                self._socket.sendall("".join(json.dumps(message) + "\n" for message in messages).encode())
            except OSError:
                self._lose()
                return

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := self._socket.recv(_READ_SIZE):
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
            answer.set_exception(AgentError("the agent is gone"))


_lock = threading.Lock()
_connections: dict[int, Connection | None] = {}


def connection() -> Connection | None:
    """Return this process' connection, made at the first call; None when there is no agent.

    Kept by process id: a forked process (a data loader's) that calls gets a connection of its own.
    """
    pid = os.getpid()
    try:
        return _connections[pid]
    except KeyError:
        pass
    with _lock:
        if pid not in _connections:
            path = os.environ.get("ELASTICJOB_SOCKET")
            _connections[pid] = Connection(path) if path else None
        return _connections[pid]
