"""Keeps processes in standby for those that torchrun starts, as children of torchrun's process.

The process that runs torchrun uses it, also before torchrun begins. torchrun starts each of its
processes by
    subprocess.Popen([sys.executable, "-u", SCRIPT, ARGUMENTS …], env=…)
The first one reports its imports to the agent, through torchrun's pipe. A later torchrun, while it
is in standby itself, starts children that import the same and wait. Popen then takes one of them,
if it is to run the same command. The order to go contains the open files that torchrun would have
passed.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import GO, MORE
from .environment import READ_BY_LIBRARIES

_START = os.path.join(os.path.dirname(__file__), os.pardir, "_standby_start.py")  # noqa: PTH118, PTH120
_POSITION = 2
"""Of the script, or of -m, in a command."""
_OPTIONS = {"args", "env", "stdout", "stderr", "start_new_session"}
"""What torchrun passes to Popen."""
_MARK = "TORCHELASTIC_RUN_ID"
"""The agent recognizes processes that torchrun has started by this variable."""
_RANK = "LOCAL_RANK"
_COUNT = "LOCAL_WORLD_SIZE"
"""torchrun sets these for each of its processes."""
Message = dict[str, Any]


class Children:
    """The children in standby, and what torchrun starts."""

    def __init__(
        self, send: Callable[[Message], None], pipe: int, given: Mapping[str, str]
    ) -> None:
        self._send = send
        self._pipe = pipe
        self._given = dict(given)
        self._command: list[str] = []
        self._waiting: list[_Child] = []
        self._folder = os.getcwd()  # noqa: PTH109
        self._pid = os.getpid()

    def prepare(
        self, facts: Message | None, parts: list[Message], oom_score: str, *, rests: bool
    ) -> None:
        """Let children import these parts of an import list, one child after another.

        The facts are about an earlier child, if none has been started yet. A running child has the
        `oom_score`. Children that `rest` leave most of the CPU to others while they import.
        """
        content = {"imports": parts, "rests": rests, "oom_score": oom_score, "index": -1}
        if self._waiting:
            for child in self._waiting:
                child.order(content, MORE)
                child.wait()
        elif facts is not None and facts["command"][0] == sys.executable:
            self._command = facts["command"]
            environment = {**self._given, **facts["environment"]}
            for _ in range(facts["count"]):
                child = _Child(
                    subprocess.Popen, self._command, self._pipe, content, env=environment
                )
                self._waiting.append(child)
                child.wait()

    def begin(self) -> None:
        """Let torchrun, which begins now, take the children."""
        start = subprocess.Popen.__init__

        @functools.wraps(start)
        def take_or_start(popen: Any, *args: Any, **options: Any) -> None:
            start_cold = functools.partial(start, popen)
            if os.getpid() != self._pid or not self._take(popen, args, options, start_cold):
                start_cold(*args, **options)

        subprocess.Popen.__init__ = take_or_start  # type: ignore[method-assign, assignment]

    def _take(
        self, popen: Any, args: Sequence[Any], options: Message, start_cold: Callable[..., None]
    ) -> bool:
        """Return whether a child has become this process, or one has been started that reports."""
        words = list(options.get("args", args[0] if args else ()))
        environment = dict(options.get("env") or {})
        known = type(popen) is subprocess.Popen and len(args) < 2 and _OPTIONS.issuperset(options)
        if not known or not {_RANK, _COUNT}.issubset(environment) or not _runs_python(words):
            return False
        index = int(environment[_RANK])
        if index == 0:
            self._send({"child": self._facts(words, environment)})
        if words != self._command or self._folder != os.getcwd():  # noqa: PTH109
            self._end()
        files = [_number(options.get("stdout"), 1), _number(options.get("stderr"), 2)]
        content = {"environment": environment, "index": index}
        content["session"] = options.get("start_new_session")
        while self._waiting and None not in files:
            child = self._waiting.pop(0)
            if child.popen.poll() is None and child.order(content, GO, files):
                vars(popen).update(vars(child.popen))
                child.popen.returncode = 0  # its end is waited for by the other object
                popen.args = words
                return True
            child.end()
        if index == 0:
            options.pop("args", None)
            child = _Child(start_cold, words, self._pipe, {"imports": None, "index": 0}, **options)
            child.release()
            popen.args = words
        return index == 0

    def _facts(self, words: list[str], environment: dict[str, str]) -> Message:
        changed = {
            name: value
            for name, value in environment.items()
            if name.startswith((*READ_BY_LIBRARIES, _MARK)) and self._given.get(name) != value
        }
        return {"command": words, "environment": changed, "count": int(environment[_COUNT])}

    def _end(self) -> None:
        for child in self._waiting:
            child.end()
        self._waiting = []
        self._command = []


class _Child:
    """A process that runs a command of Python, at once or after an order."""

    def __init__(
        self,
        start: Callable[..., Any],
        command: list[str],
        pipe: int,
        content: Message,
        **options: Any,
    ) -> None:
        self._memory = os.memfd_create("elasticjob-standby")
        self._orders, end = socket.socketpair()
        self._write({"launches": False, **content})
        control = f"{pipe},{end.fileno()},{self._memory},{_POSITION}"
        words = [*command[:_POSITION], _START, control, *command]
        numbers = (pipe, end.fileno(), self._memory)
        try:
            self.popen = start(words, pass_fds=numbers, **options)
        finally:
            end.close()

    def order(self, content: Message, order: bytes, files: Sequence[Any] = ()) -> bool:
        """Send an order with its content and open files; return whether the child existed."""
        self._write(content)
        try:
            socket.send_fds(self._orders, [order], list(files))
        except OSError:
            return False
        if order == GO:
            self.release()
        return True

    def wait(self) -> None:
        """Wait until it has imported everything, or has ended."""
        self._orders.recv(1)

    def end(self) -> None:
        """End it; it has not begun to run the command."""
        self.release()
        self.popen.kill()
        self.popen.wait()

    def release(self) -> None:
        """Forget it: it runs the command."""
        self._orders.close()
        if self._memory >= 0:
            os.close(self._memory)
        self._memory = -1

    def _write(self, content: Message) -> None:
        data = json.dumps(content).encode()
        os.ftruncate(self._memory, 0)
        os.pwrite(self._memory, data, 0)


def next_order(orders: int) -> tuple[bytes, list[int]]:
    """Say that this child is ready; wait for the next order, and return it with its files."""
    connection = socket.socket(fileno=orders)
    connection.sendall(b"r")
    order, files, _, _ = socket.recv_fds(connection, 1, 2)
    connection.detach()
    return order, files


def _runs_python(words: list[Any]) -> bool:
    """Return whether torchrun starts this Python with a script or a module."""
    if len(words) <= _POSITION or words[:2] != [sys.executable, "-u"]:
        return False
    script = words[_POSITION]
    return script.endswith(".py") or (script == "-m" and len(words) > _POSITION + 1)


def _number(file: Any, default: int) -> int | None:
    """Return the descriptor of an open file; None if it is something else."""
    if file is None:
        return default
    return file.fileno() if hasattr(file, "fileno") else None
