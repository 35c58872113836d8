"""`ssh` on the PATH of a launcher: runs a command in a worker, through the agents.

It accepts the options of OpenSSH and ignores them. The command's standard input is empty. The exit
code is that of the command, or 255 if it could not be run or the worker is lost. Signals are
forwarded to the command.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from elasticjob_api import names

from elasticjob_agent.remote_shell.session import (
    ALIVE_SECONDS,
    MOST_SILENT_CALLS,
    AgentSocket,
    Receiver,
    Refused,
    Sender,
)

FAILED = 255
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""OpenSSH's options that have a value."""
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class UsageError(Exception):
    """The command line cannot be carried out."""


def parse(arguments: Sequence[str]) -> tuple[str, str]:
    """Return host and command of a command line of OpenSSH."""
    rest = _after_options(arguments)
    if not rest:
        raise UsageError("usage: ssh [options] host command")
    host = rest[0].rpartition("@")[2]
    command = _after_options(rest[1:])
    if not command:
        raise UsageError(f"no command for {host}: there are no interactive sessions")
    return host, " ".join(command)


def _after_options(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments after the options; a last letter may have its value in the next one."""
    while arguments and arguments[0].startswith("-"):
        option, *arguments = arguments
        if option == "--":
            break
        with_value = next(
            (place for place, letter in enumerate(option) if letter in _WITH_VALUE), None
        )
        if with_value == len(option) - 1:
            arguments = arguments[1:]
    return arguments


def main() -> int:
    """Run the command; returns its exit code."""
    outgoing: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for number in _SIGNALS:
        signal.signal(number, lambda received, _frame: outgoing.put({"signal": received}))
    try:
        host, command = parse(sys.argv[1:])
        session = uuid.uuid4().hex
        _open(host, session, command)
        sender = Sender(host, session)
        threading.Thread(target=_send, args=(sender, outgoing), daemon=True).start()
        return _copy_output(host, session)
    except (UsageError, Refused, OSError, KeyError) as error:
        sys.stderr.write(f"ssh: {error}\n")
        return FAILED


def _open(host: str, session: str, command: str) -> None:
    """Request a command from the worker; return when it has received the request."""
    agent = AgentSocket()
    opening = json.dumps(
        {"session": session, "launcher": os.environ[names.ENV_POD_UID], "command": command}
    )
    for _ in range(MOST_SILENT_CALLS):
        if agent.call("shell_send", host=host, session="", message=session, data=opening)["taken"]:
            agent.close()
            return
    raise TimeoutError(f"{host} does not answer")


def _send(sender: Sender, outgoing: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Send signals, and messages that this end is alive."""
    while True:
        try:
            message = outgoing.get(timeout=ALIVE_SECONDS)
        except queue.Empty:
            message = {"alive": True}
        try:
            sender.send(message)
        except (OSError, Refused):
            return  # the receiver notices it, too


def _copy_output(host: str, session: str) -> int:
    receiver = Receiver(host, session)
    for message in receiver.messages():
        for name, number in (("stdout", 1), ("stderr", 2)):
            _write(number, message.get(name, "").encode("latin-1"))
        if "exit" in message:
            receiver.take_last()
            return int(message["exit"])
        if "close" in message:
            break
    raise ConnectionError(f"{host} is lost")


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


if __name__ == "__main__":
    sys.exit(main())
