"""Starts background processes that outlive their command, and finds them again.

A process is identified by its id and the kernel's start time, so a reused id is never mistaken for
ours. Each also has the cluster's directory in its environment: that finds the processes which a
crash kept from being recorded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticjob_processes.killing import kill
from elasticjob_processes.table import process_table, read_process, variable

from elasticjob_localcluster.foreground import last_lines

CLUSTER_VARIABLE = "ELASTICJOB_DEV_CLUSTER"


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies one process: its id and its start time, in the kernel's ticks after boot."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        process = read_process(self.pid)
        return process is not None and process.started == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.alive():
            kill(self.pid, number)


def start(
    name: str, command: Sequence[str | Path], *, state: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in its own session in the state directory, and record its identity."""
    with log_file(state, name).open("ab") as log:
        child = subprocess.Popen(
            command,
            cwd=state,
            env={**environ, CLUSTER_VARIABLE: str(state)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = read_process(child.pid)
    started = 0 if process is None else process.started
    (state / "pids" / name).write_text(f"{child.pid} {started}\n")
    return child


def log_file(state: Path, name: str) -> Path:
    """Return where a process writes its output."""
    return state / "logs" / f"{name}.log"


def log_tail(state: Path, name: str, lines: int) -> str:
    """Return the last lines of a process's output that are not empty."""
    return last_lines(log_file(state, name).read_text(errors="replace"), lines)


def recorded(state: Path) -> dict[str, ProcessIdentity]:
    """Return the recorded processes by name, alive or not."""
    result = {}
    for path in sorted((state / "pids").glob("*")):
        fields = path.read_text().split()
        if len(fields) == 2 and all(field.isdecimal() for field in fields):
            result[path.name] = ProcessIdentity(int(fields[0]), int(fields[1]))
    return result


def find_processes(state: Path) -> set[ProcessIdentity]:
    """Return all live processes of the cluster, also unrecorded ones and children."""
    return {process for process, of in _marked() if of == str(state) and process.pid != os.getpid()}


def find_states() -> list[Path]:
    """Return the directories of all clusters of this user that have live processes."""
    return sorted({Path(of) for process, of in _marked() if _owner(process.pid) == os.getuid()})


def _marked() -> Iterator[tuple[ProcessIdentity, str]]:
    """Yield every live process that belongs to a cluster, with the cluster's directory."""
    for pid, process in process_table().items():
        directory = variable(pid, CLUSTER_VARIABLE)
        if directory is not None:
            yield ProcessIdentity(pid, process.started), directory


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def stop(processes: Iterable[ProcessIdentity], *, seconds: float) -> None:
    """Send SIGTERM, wait at most `seconds`, then send SIGKILL.

    Return when none of the processes runs.
    """
    processes = list(processes)
    for number, limit in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        for process in processes:
            process.send(number)
        deadline = time.monotonic() + limit
        while any(process.alive() for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
