"""One end of a session: sends messages to the other end, and receives its messages.

The agents pass them on. Uses only the standard library. A message is a JSON object. Each end sends
`{"alive": true}` when it has sent nothing else for `ALIVE_SECONDS`, so each notices the loss of the
other one. While the master is unreachable an agent answers nothing, and no end counts as lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from elasticjob_api import names

ALIVE_SECONDS = 2.0
MOST_SILENT_CALLS = 8
"""After this number of successive answers without a message, the other end counts as lost.

Each call takes two seconds.
"""
CLOSED = {"close": True}
"""The message that this end has closed the session."""


class Refused(Exception):
    """The agent or the master has refused a call; the message says why."""


class AgentSocket:
    """A connection to this process' agent, for one thread."""

    def __init__(self, path: str = "", *, timeout: float | None = None) -> None:
        """Connect to the socket at a path, by default the one of the environment.

        Each answer may take `timeout` seconds.
        """
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(path or os.environ[names.ENV_SOCKET])
        self._lines = self._socket.makefile()

    def call(self, name: str, **fields: Any) -> dict[str, Any]:
        """Return the agent's answer; raises Refused, and OSError without an agent."""
        self.send({"id": 1, "call": name, **fields})
        for line in self._lines:
            message = json.loads(line)
            if message.get("id") == 1:
                if "error" in message:
                    raise Refused(message["error"])
                result: dict[str, Any] = message["result"]
                return result
        raise ConnectionError("the agent has closed the connection")

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that needs no answer."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Close the connection; the agent then closes the session that has sent on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # also for a thread that waits for an answer
        self._socket.close()


class Sender:
    """Sends the messages of one end of a session, one after the other; for one thread."""

    def __init__(self, host: str, session: str) -> None:
        self._agent = AgentSocket()
        self._to = {"host": host, "session": session}
        self._number = 0
        self.closed = threading.Event()
        """Set when the other end has stopped receiving."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; return when the other end has it, or has stopped receiving."""
        self._number += 1
        number = str(self._number)
        data = json.dumps(message)
        while not self.closed.is_set():
            if self._agent.call("shell_send", **self._to, message=number, data=data)["taken"]:
                return

    def close(self) -> None:
        """End this session, if it has not ended."""
        self.closed.set()
        self._agent.close()


class Receiver:
    """Receives the messages of one end of a session; for one thread."""

    def __init__(self, host: str, session: str) -> None:
        self._agent = AgentSocket()
        self._from = {"host": host, "session": session}
        self._taken = ""

    def next(self) -> dict[str, Any] | None:
        """Return the other end's next message, or None if none comes within two seconds."""
        answer = self._agent.call("shell_receive", **self._from, taken=self._taken)
        if not answer["message"]:
            return None
        if answer["message"] == self._taken:
            return {}  # a restarted master repeats the last one
        self._taken = answer["message"]
        message: dict[str, Any] = json.loads(answer["data"])
        return message

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages until the other end is lost, then `CLOSED`."""
        silent = 0
        while silent < MOST_SILENT_CALLS:
            message = self.next()
            silent = silent + 1 if message is None else 0
            if message:
                yield message
        yield CLOSED

    def take_last(self) -> None:
        """Confirm the other end's last message, without waiting for an answer."""
        self._agent.send({"id": 0, "call": "shell_receive", **self._from, "taken": self._taken})

    def close(self) -> None:
        """End the connection to the agent."""
        self._agent.close()
