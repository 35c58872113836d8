"""Finds out what the training processes execute, without stopping them and without a signal.

py-spy reads the memory of a process. Where it may not, as in a container whose seccomp profile or
kernel forbids it, the program is asked on its connection to the agent, if it imports elasticjob.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_processes import table
from elasticjob_processes.exec_child import dying_with_parent
from elasticjob_processes.killing import kill, kill_tree

from elasticjob_agent import torchrun_ranks
from elasticjob_agent.node_check import read_all
from elasticjob_agent.training_messages import MOST_FRAMES, MOST_THREADS, texts
from elasticjob_agent.training_socket import TrainingSocket

SECONDS = 8.0
"""For all processes of a member; the master waits for 10 s."""
_ANSWER_SECONDS = 1.0
_NATIVE_BYTES = 512 << 20
"""Without that much free memory no native frames are read, as py-spy loads symbols for them."""
_LEAST_BYTES = 64 << 20
_MOST_BYTES_READ = 4 << 20
_MOST_BYTES_SENT = 512 << 10
_PYTHON = ("python", "pypy")


class Stacks:
    """Collects the stacks of a member's processes, one collection at a time."""

    def __init__(
        self, socket: TrainingSocket, free_memory: Callable[[], int], launcher_mark: str | None
    ) -> None:
        """Prepare to ask the processes at a socket.

        A launcher that starts the ranks itself sets the variable `launcher_mark` in them.
        """
        self._socket = socket
        self._free_memory = free_memory
        self._mark = launcher_mark
        self._number = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._runs = False

    async def collect(
        self, request: pb.CollectStacks, roots: Sequence[int], in_standby: Collection[int]
    ) -> pb.Stacks | None:
        """Return the stacks; None if a collection runs already, which then answers this request.

        `roots`: the processes that the agent has started, by local rank; 0 for one that has ended.
        """
        self._number = request.number
        if self._runs:
            return None
        self._runs = True
        found: list[pb.ProcessStack] = []
        until = asyncio.get_running_loop().time() + SECONDS
        try:
            pids = await asyncio.to_thread(_processes_of_ranks, roots, in_standby, self._mark)
            for local_rank, pid in enumerate(pids):
                left = until - asyncio.get_running_loop().time() - _ANSWER_SECONDS
                if left < 0 or sum(each.ByteSize() for each in found) > _MOST_BYTES_SENT:
                    break
                found.append(await self._stack(local_rank, pid, left / 3, request.may_pause))
        finally:
            self._runs = False
        return pb.Stacks(number=self._number, processes=found)

    def end(self) -> None:
        """Kill py-spy if it runs."""
        if self._program is not None:
            kill_tree(self._program.pid)
            self._program.returncode = 0  # it is reaped with all other children, not here
            self._program = None

    async def _stack(
        self, local_rank: int, pid: int, seconds: float, may_pause: bool
    ) -> pb.ProcessStack:
        if not pid:
            return pb.ProcessStack(local_rank=local_rank, problem="it has ended")
        stopped = _is_stopped(pid)
        free = self._free_memory()
        modes = ["--native"] if may_pause and not stopped and free > _NATIVE_BYTES else []
        if free > _LEAST_BYTES:
            modes.append("--nonblocking")
        problem = "there is too little free memory for py-spy"
        for mode in modes:
            frames, others, problem = await self._read(pid, mode, seconds)
            if mode == "--native" and _is_stopped(pid):
                kill(pid, signal.SIGCONT)  # py-spy was killed while it paused the process
            if frames:
                break
        else:
            frames, others = await self._socket.stacks(local_rank, _ANSWER_SECONDS)
        if frames:
            problem = ""
        if stopped:
            problem = "the process is stopped by a signal (SIGSTOP or SIGTSTP)"
        return pb.ProcessStack(
            local_rank=local_rank, frames=frames, other_threads=others, problem=problem
        )

    async def _read(self, pid: int, mode: str, seconds: float) -> tuple[list[str], list[str], str]:
        """Return the frames of the main thread and the other threads, or none and why."""
        try:
            self._program = _start(["dump", "--json", "--pid", str(pid), mode])
            assert self._program.stdout is not None
            with self._program.stdout as pipe:
                async with asyncio.timeout(seconds):
                    text = await read_all(pipe.fileno(), most=_MOST_BYTES_READ)
            if len(text) < _MOST_BYTES_READ:
                self._program.returncode = 0  # it has ended, and its process id may be reused
                self._program = None
        except OSError as error:  # also a TimeoutError
            return [], [], f"py-spy has not ended in time, or cannot be started: {error}"
        finally:
            self.end()
        return _parsed(text.decode(errors="replace"))


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start py-spy, which is installed beside the interpreter of this agent, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy") or "py-spy"
    return subprocess.Popen(
        dying_with_parent([program, *arguments]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _parsed(text: str) -> tuple[list[str], list[str], str]:
    frames: list[str] = []
    others: list[str] = []
    try:
        for thread in json.loads(text[text.index("[\n") :]):
            # Addresses without a name differ from process to process.
            named = [_frame(each) for each in thread["frames"] if not each["name"].startswith("0x")]
            if thread["thread_name"] == "MainThread" or thread["os_thread_id"] == thread["pid"]:
                frames = texts(named, MOST_FRAMES)
            elif len(others) < MOST_THREADS:
                others += texts([f"{thread['thread_name'] or '?'}: {' < '.join(named)}"], 1)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        lines = text.strip().splitlines() or ["it has printed nothing"]
        return [], [], f"py-spy cannot read it: {lines[-1][:200]}"
    return frames, others, ""


def _frame(frame: Mapping[str, Any]) -> str:
    line = f":{frame['line']}" if frame["line"] else ""
    return f"{frame['name']} ({frame['short_filename'] or frame['filename']}{line})"


def _processes_of_ranks(
    roots: Sequence[int], in_standby: Collection[int], mark: str | None
) -> list[int]:
    """Return the process that trains, or 0, for each process that the agent has started.

    A shell or a launcher may have started it.
    """
    pids = torchrun_ranks.processes(mark, in_standby) if mark else ()
    by_text = {table.variable(pid, "LOCAL_RANK"): pid for pid in pids}
    # A program may set any text; only the numbers of processes count.
    ranks = [rank for rank in range(MAX_SLOTS) if str(rank) in by_text]
    if ranks:
        return [by_text.get(str(at), 0) for at in range(ranks[-1] + 1)]
    trees = table.trees(table.process_table(), set(roots) - {0})
    return [_python_in(root, trees[root]) if root else 0 for root in roots]


def _python_in(root: int, tree: Mapping[int, table.ProcessEntry]) -> int:
    """Return the first process of a tree that runs Python, or its root."""
    for pid in sorted(tree, key=lambda pid: (pid != root, tree[pid].started)):
        with suppress(OSError):
            if Path(f"/proc/{pid}/exe").readlink().name.startswith(_PYTHON):
                return pid
    return root


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
