"""Runs a fake agent in a thread, for tests of how a training process uses its socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from elasticjob import _agent_connection


class FakeAgent:
    """Keeps training processes' messages, requests a stop, and answers some calls."""

    def __init__(
        self,
        path: Path,
        *,
        stop_at: int | None,
        reads: bool,
        may_commit: bool | None,
        roles: Sequence[str],
    ) -> None:
        self.messages: list[dict[str, Any]] = []
        self.disconnects = 0
        self._stop_at = stop_at
        self._reads = reads
        self._may_commit = may_commit
        self._roles = roles
        self._changed = threading.Condition()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if "step" in message]

    def sum(self, field: str) -> float:
        total: float = sum(report[field] for report in self.reports)
        return total

    def wait(self, what: Any) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), 20), self.messages
            return what(self)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._server, *self._connections):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._connections.append(connection)
                if self._reads:
                    self._threads.append(
                        threading.Thread(target=self._listen, args=(connection,), daemon=True)
                    )
                    self._threads[-1].start()

    def _listen(self, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile() as lines:
            for line in lines:
                message = json.loads(line)
                with self._changed:
                    self.messages.append(message)
                    self._changed.notify_all()
                if self._stop_at is not None and message.get("step", -1) >= self._stop_at:
                    connection.sendall(b'{"stop": true}\n')
                if message.get("call") == "may_commit" and self._may_commit is not None:
                    result = {} if self._may_commit else {"why_not": "the others train without it"}
                    self._answer(connection, message["id"], result)
                if message.get("call") == "state_folder":
                    self._answer(connection, message["id"], {"path": None, "address": None})
                if message.get("call") == "roles":
                    self._answer(connection, message["id"], {"roles": list(self._roles)})
                if message.get("call") == "members":
                    self._answer(connection, message["id"], {"members": self._members()})
        with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    def _answer(self, connection: socket.socket, call: int, result: dict[str, Any]) -> None:
        connection.sendall(json.dumps({"id": call, "result": result}).encode() + b"\n")

    def _members(self) -> list[dict[str, Any]]:
        place = {"pod": "", "index": 0, "address": "", "node": ""}
        return [{**place, "role": role} for role in self._roles]


@contextmanager
def fake_agent(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    stop_at: int | None = None,
    reads: bool = True,
    may_commit: bool | None = True,
    roles: Sequence[str] = ("worker",),
) -> Iterator[FakeAgent]:
    """Run a fake agent of this process, which opens a new connection to it.

    `may_commit` is its answer; None for no answer. `roles` are those of the world's processes.
    """
    path = folder / "agent.sock"
    agent = FakeAgent(path, stop_at=stop_at, reads=reads, may_commit=may_commit, roles=roles)
    monkeypatch.setenv("ELASTICJOB_SOCKET", str(path))
    _agent_connection.reset_after_fork()
    try:
        yield agent
    finally:
        agent.close()
        monkeypatch.delenv("ELASTICJOB_SOCKET")
        _agent_connection.reset_after_fork()
