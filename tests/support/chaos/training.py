"""Shared by the trainings of a chaos run: the log of all samples, and the agreement of a world's
processes.

Times in the log are those of the monotonic clock, which all processes of the machine share and no
fault changes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import elasticjob
from elasticjob_api import names

PASSING = 200
"""The exit code of a transient error: the member is restarted without being blamed."""
END = "end"
"""The file of the volume with the model at the end of a training that keeps it in memory."""
_FIRST_PORT = 21_000
_PORTS = 9_000


class Log:
    """The lines of this process: its identity, every sample it trains, and every commit."""

    def __init__(self, folder: Path) -> None:
        world = elasticjob.world()
        pod = os.environ.get(names.ENV_POD_NAME, "alone")
        self.path = folder / f"{pod}-{world.round}-{os.getpid()}.jsonl"
        self.write(pod=pod, round=world.round, rank=world.rank, size=world.size, pid=os.getpid())

    def write(self, **what: Any) -> None:
        """Add a line; it is in the file when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps({"at": time.monotonic(), **what}) + "\n")


class WorldEnded(Exception):
    """Another process of this world has ended, so no agreement is possible any more."""


class Agreement:
    """Sends a value of each process to rank 0, and rank 0's answer to all.

    A stand-in for a collective.
    """

    def __init__(self) -> None:
        """Connect all processes of this world.

        Raises:
            WorldEnded: some are missing.
        """
        self.world = elasticjob.world()
        self._files: list[Any] = []
        port = _FIRST_PORT + self.world.round % _PORTS
        try:
            root = elasticjob.members()[0].address
            if self.world.rank:
                self._files.append(_connected(root, port, self.world.rank))
            else:
                self._files += _accepted(root, port, self.world.size - 1)
        except (OSError, elasticjob.AgentError) as error:
            raise WorldEnded(str(error)) from error

    def gather(self, mine: Any) -> list[Any]:
        """Return the values of all ranks, in rank 0; an empty list in the others."""
        try:
            if self.world.rank:
                _send(self._files[0], mine)
                return []
            return [mine, *(_receive(file) for file in self._files)]
        except (OSError, ValueError) as error:
            raise WorldEnded(str(error)) from error

    def answer(self, answer: Any = None) -> Any:
        """Return rank 0's answer in all ranks."""
        try:
            if self.world.rank:
                return _receive(self._files[0])
            for file in self._files:
                _send(file, answer)
        except (OSError, ValueError) as error:
            raise WorldEnded(str(error)) from error
        return answer


def end_of_world() -> NoReturn:
    """Wait until the agent ends this process, as one that hangs in a collective would.

    Then give up.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if elasticjob.should_stop():
            elasticjob.confirm_stop()
            sys.exit(0)
    sys.exit(PASSING)


def _accepted(address: str, port: int, count: int) -> list[Any]:
    found: dict[int, Any] = {}
    with socket.create_server((address, port)) as listening:
        listening.settimeout(30)
        while len(found) < count:
            connection, _ = listening.accept()
            file = connection.makefile("rwb")
            found[_receive(file)] = file
    return [found[rank] for rank in sorted(found)]


def _connected(address: str, port: int, rank: int) -> Any:
    deadline = time.monotonic() + 30
    while True:
        try:
            file = socket.create_connection((address, port), timeout=30).makefile("rwb")
            file_socket = file
            break
        except OSError:
            if time.monotonic() > deadline or elasticjob.should_stop():
                raise
            time.sleep(0.1)
    _send(file_socket, rank)
    return file_socket


def _send(file: Any, what: Any) -> None:
    file.write(json.dumps(what).encode() + b"\n")
    file.flush()


def _receive(file: Any) -> Any:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the other process has ended")
    return json.loads(line)
