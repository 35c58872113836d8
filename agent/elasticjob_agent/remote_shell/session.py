"""One end of a session: messages to the other end and from it, which an agent passes on.

Standard library only. A message is a JSON object. Both ends send `{"alive": true}` every
`ALIVE_SECONDS` in which they send nothing else, so that each notices when the other one is gone.
While there is no master, an agent answers nothing, and neither is missed.
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
"""Calls in a row that the master has answered, each after two seconds, without a message: the other
end is gone.
"""
CLOSED = {"close": True}
"""The message that tells the other end that this one is gone."""


class Refused(Exception):
    """The agent or the master has refused a call; the message says why."""


class AgentSocket:
    """A connection to this process' agent, for one thread."""

    def __init__(self, path: str = "", *, timeout: float | None = None) -> None:
        """Connect to the socket at a path, else at that of the environment.

        Each answer may take so many seconds.
        """
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(path or os.environ[names.ENV_SOCKET])
        self._lines = self._socket.makefile()

    def call(self, name: str, **fields: Any) -> dict[str, Any]:
        """Return the agent's answer; raises OSError when it is gone, and Refused."""
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
        """End the connection; the agent tells the other end of the session that has sent here."""
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
        """Nobody takes messages any more."""

    def send(self, message: dict[str, Any]) -> None:
        """Return when the other end has taken a message, or there is nobody to take it."""
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
        """Return the other end's next message; None: there has been none for a while."""
        answer = self._agent.call("shell_receive", **self._from, taken=self._taken)
        if answer["message"] in (
            "",
            self._taken,
        ):  # the last one is repeated when a master has restarted
            return {} if answer["message"] else None
        self._taken = answer["message"]
        message: dict[str, Any] = json.loads(answer["data"])
        return message

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages until the other end is gone: then `CLOSED`."""
        silent = 0
        while silent < MOST_SILENT_CALLS:
            message = self.next()
            silent = silent + 1 if message is None else 0
            if message:
                yield message
        yield CLOSED

    def take_last(self) -> None:
        """Tell the other end that its last message has come, without waiting for an answer."""
        self._agent.send({"id": 0, "call": "shell_receive", **self._from, "taken": self._taken})

    def close(self) -> None:
        """End the connection to the agent."""
        self._agent.close()
