"""The program of a worker whose launcher starts the training: runs the commands of its `ssh`.

It ends when its host has left the host list and the last command has ended: then it has left the
training. It fails when a training process fails: Horovod never uses a host of that name again, so
another pod is needed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

from elasticjob_api import names
from elasticjob_processes.exec_child import original_environment
from elasticjob_processes.killing import kill_group, shell_code

from elasticjob_agent.log import say
from elasticjob_agent.remote_shell.session import (
    ALIVE_SECONDS,
    AgentSocket,
    Receiver,
    Refused,
    Sender,
)

MOST_SESSIONS = 512
CHUNK_BYTES = 16 * 1024
_KILL_SECONDS = 5.0
_LEFTOVER_SECONDS = 1.0
_NEW_LAUNCHER_SECONDS = 10.0
_TRAINING = "HOROVOD_RANK="
"""A part of the command with which a launcher starts a training process."""
_OWN_ENVIRONMENT = (
    "env() { elasticjob_word=; for elasticjob_each; do shift;"
    " case $elasticjob_word$elasticjob_each in"
    " ELASTICJOB_*=*|HOSTNAME=*) continue ;; *=*) ;; *) elasticjob_word=/ ;; esac;"
    ' set -- "$@" "$elasticjob_each"; done; command env "$@"; }\n'
)
"""Precedes a command. Horovod passes the launcher's whole environment on by `env`; this function
drops the variables that describe the launcher's pod.
"""


class Session(threading.Thread):
    """One command, its output, and the messages of the launcher meanwhile."""

    def __init__(self, host: str, opening: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.launcher = opening["launcher"]
        self.code = 0
        """The exit code of a training process that failed without a signal of the launcher."""
        self._command: str = opening["command"]
        self._sender = Sender(host, opening["session"])
        self._receiver = Receiver(host, opening["session"])
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled = False

    def run(self) -> None:
        """Run the command to its end."""
        try:
            self._process = subprocess.Popen(
                ["sh", "-c", _OWN_ENVIRONMENT + self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            self._send({"stderr": f"cannot run sh: {error}\n"})
            self._send({"exit": 126})
        else:
            threading.Thread(target=self._listen, daemon=True).start()
            self._copy_output(self._process)
            code = shell_code(self._process.wait())
            if code and _TRAINING in self._command and not self._signalled:
                self.code = code
            self._send({"exit": code})
        self._sender.close()
        self._receiver.close()

    def end(self) -> None:
        """End the command and its process group."""
        self._signal(signal.SIGTERM)
        later = threading.Timer(_KILL_SECONDS, self._signal, [signal.SIGKILL])
        later.daemon = True
        later.start()

    def _listen(self) -> None:
        try:
            for message in self._receiver.messages():
                if "signal" in message:
                    self._signal(message["signal"])
                if "close" in message:
                    break
        except (OSError, ValueError, Refused):
            pass  # the agent is lost, or this session has ended
        self._sender.closed.set()
        self.end()

    def _signal(self, number: int) -> None:
        self._signalled = True
        if self._process is not None and self._process.returncode is None:
            kill_group(self._process.pid, number)

    def _copy_output(self, process: subprocess.Popen[bytes]) -> None:
        """Send the output until its end, or until the process has ended and its group is killed."""
        sent_at = time.monotonic()
        ended_at = None
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
                assert pipe is not None
                selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select(ALIVE_SECONDS / 4):
                    if chunk := os.read(key.fd, CHUNK_BYTES):
                        self._send({key.data: chunk.decode("latin-1")})
                        sent_at = time.monotonic()
                    else:
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                if now - sent_at > ALIVE_SECONDS:
                    self._send({"alive": True})
                    sent_at = time.monotonic()
                if ended_at is None and process.poll() is not None:
                    ended_at = now
                    kill_group(process.pid)
                if ended_at is not None and now - ended_at > _LEFTOVER_SECONDS:
                    return

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._sender.send(message)
        except (OSError, Refused):
            self._sender.closed.set()


class Worker:
    """Runs the commands that the launcher opens sessions for."""

    def __init__(self) -> None:
        self._host = os.environ[names.ENV_POD_NAME]
        self._agent = AgentSocket()
        self._openings = Receiver(self._host, "")
        self._sessions: dict[str, Session] = {}
        self._opened = deque[str](maxlen=4 * MOST_SESSIONS)
        self._listed = False
        self._stopping = False

    def stop(self, *_: object) -> None:
        """End all commands, and then this program."""
        self._stopping = True
        for session in list(self._sessions.values()):
            session.end()

    def run(self) -> int:
        """Work until this host leaves, or a training process has failed; returns the exit code."""
        code = 0
        while True:
            opening = self._openings.next()
            if opening and not self._stopping:
                self._open(opening)
            for name, session in list(self._sessions.items()):
                if not session.is_alive():
                    code = code or session.code
                    del self._sessions[name]
            if self._sessions:
                continue
            if self._stopping:
                return 128 + signal.SIGTERM
            if self._has_left():
                self._agent.send({"stopping": True})
                return 0
            if code:
                return code

    def _open(self, opening: dict[str, Any]) -> None:
        if len(self._sessions) >= MOST_SESSIONS or opening["session"] in self._opened:
            return
        self._opened.append(opening["session"])
        self._listed = True  # otherwise the master would not have passed it on
        others = [each for each in self._sessions.values() if each.launcher != opening["launcher"]]
        for session in others:
            session.end()
        for session in others:  # they may hold ports and GPUs
            session.join(_NEW_LAUNCHER_SECONDS)
        self._sessions[opening["session"]] = session = Session(self._host, opening)
        session.start()

    def _has_left(self) -> bool:
        """Return whether this host was in the host list and has left it."""
        listed = any(host["name"] == self._host for host in self._agent.call("hosts")["hosts"])
        self._listed = self._listed or listed
        return self._listed and not listed


def _environment() -> dict[str, str]:
    """Return the environment of this container, in which a training script may start Horovod."""
    environment = original_environment()
    environment.pop("HOROVOD_CONTROLLER", None)
    return environment


def main() -> int:
    """Run a worker."""
    try:
        worker = Worker()
        signal.signal(signal.SIGTERM, worker.stop)
        return worker.run()
    except (OSError, Refused, json.JSONDecodeError) as error:
        say(f"the remote shell has ended: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
