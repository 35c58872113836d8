"""One interpreter of the training program: in standby, or running the program."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from elasticjob_processes.killing import kill_tree
from elasticjob_processes.table import is_dying

from elasticjob_agent import LIBRARY
from elasticjob_agent.standby import import_list
from elasticjob_agent.standby.import_list import ImportList, Report

Start = Callable[..., "subprocess.Popen[bytes]"]
_START = "_standby_start.py"
_GO = b"g"
_MORE = b"m"
_READ_BYTES = 1 << 16
_MOST_BYTES = 4 << 20
"""The reports of one program beyond this are not read."""


class Interpreter:
    """A process that runs a command of Python, at once or later."""

    def __init__(
        self,
        start: Start,
        command: Sequence[str],
        position: int,
        environment: Mapping[str, str],
        *,
        imports: ImportList | None,
        rests: bool = True,
        launches: bool = False,
        piped: bool,
        on_problem: Callable[[str], None],
        on_child_problem: Callable[[str], None],
    ) -> None:
        """Start the process; raises OSError if it cannot be started.

        Args:
            start: starts a command in an environment.
            command: the training command.
            position: the position of the script, or of -m, in the command.
            environment: the environment of the process.
            imports: what to import before an order to go. If None, run the program at once.
            rests: whether it leaves most of the CPU to others while it imports.
            launches: whether the program is torchrun, whose processes are to be kept in standby.
            piped: whether its standard output is a pipe.
            on_problem: called with the reason why no such process is to be kept for this command.
            on_child_problem: the same for a process that torchrun starts.
        """
        self.piped = piped
        self.reports: list[Report] = []
        """What the program has reported, if it runs."""
        self.learned = 0
        """The number of reports, of the program before, that it has imported or imports."""
        self.heard_at = time.monotonic()
        self.is_ready = False
        """It has imported everything, and waits for the order to go."""
        self.prepared = asyncio.Event()
        """It has imported everything, or has ended."""
        self.has_ended = False
        self._on_problem = on_problem
        self._on_child_problem = on_child_problem
        self._received = 0
        self._rest = b""
        self._memory = os.memfd_create("elasticjob-standby")
        reports, reports_end = os.pipe()
        orders_end, self._orders = os.pipe()
        self._settings = {"rests": rests, "launches": launches}
        self.imports = imports or ImportList()
        """What it imports, or has imported, before an order to go."""
        self._write(
            {"imports": None, **self._settings} if imports is None else self._content(imports)
        )
        if imports is None:
            os.write(self._orders, _GO)
        control = f"{reports_end},{orders_end},{self._memory},{position}"
        try:
            self.popen = start(
                [*command[:position], _starter(), control, *command],
                environment,
                piped=piped,
                pass_fds=(reports_end, orders_end, self._memory),
            )
        except OSError:
            os.close(reports)
            self._close_orders()
            raise
        finally:
            os.close(reports_end)
            os.close(orders_end)
        os.set_blocking(reports, False)
        asyncio.get_running_loop().add_reader(reports, self._read, reports)
        self._reports: int | None = reports
        if imports is None:
            self._close_orders()

    def more(self, imports: ImportList) -> None:
        """Let it import more before the order to go."""
        self.is_ready = False
        self.prepared.clear()
        self.imports += imports
        with contextlib.suppress(OSError):  # it has just ended
            self._write(self._content(imports))
            os.write(self._orders, _MORE)

    def go(self, environment: Mapping[str, str]) -> bool:
        """Let it run the program in an environment; return whether it still existed."""
        if is_dying(self.popen.pid):  # it could still be sent an order
            self._close_orders()
            return False
        try:
            self._write({"environment": dict(environment)})
            os.write(self._orders, _GO)
        except OSError:
            return False
        finally:
            self._close_orders()
        self.heard_at = time.monotonic()
        return not self.has_ended

    def kill(self) -> None:
        """Kill the process, which is in standby, with all that its imports have started."""
        if not self.has_ended:
            kill_tree(self.popen.pid)
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()

    def ended(self, code: int) -> None:
        """Record the exit code of the reaped process."""
        self.popen.returncode = code
        self.has_ended = True
        if self._reports is not None:
            self._read(self._reports)
            self._stop_reading()
        self._close_orders()
        self.prepared.set()

    def resident_bytes(self) -> int:
        """Return the resident memory of the process, with its children if it is torchrun.

        0 if it has ended.
        """
        try:
            process = psutil.Process(self.popen.pid)
            children = process.children() if self._settings["launches"] else ()
            return sum(int(each.memory_info().rss) for each in (process, *children))
        except psutil.Error:
            return 0

    def _content(self, imports: ImportList) -> dict[str, Any]:
        return {**imports.content(), **self._settings}

    def _write(self, content: Mapping[str, Any]) -> None:
        data = json.dumps(content).encode()
        os.ftruncate(self._memory, 0)
        written = 0
        while written < len(data):
            written += os.pwrite(self._memory, data[written:], written)

    def _close_orders(self) -> None:
        for number in (self._orders, self._memory):
            if number >= 0:
                os.close(number)
        self._orders = self._memory = -1

    def _stop_reading(self) -> None:
        if self._reports is not None:
            asyncio.get_running_loop().remove_reader(self._reports)
            os.close(self._reports)
            self._reports = None

    def _read(self, number: int) -> None:
        try:
            chunk = os.read(number, _READ_BYTES)
        except BlockingIOError:
            return
        self._received += len(chunk)
        if not chunk or self._received > _MOST_BYTES:
            self._stop_reading()
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            try:
                self._hear(import_list.report(line))
            except (ValueError, TypeError, RecursionError):
                self._stop_reading()  # another program has written it
                return

    def _hear(self, report: Report) -> None:
        self.heard_at = time.monotonic()
        is_child = report.index is not None
        if report.problem:
            (self._on_child_problem if is_child else self._on_problem)(report.problem)
        elif not report.ready:
            self.reports.append(report)
        elif not is_child:
            self.is_ready = True
            self.prepared.set()


def _starter() -> str:
    """Return the path of the script that the program's interpreter begins with."""
    installed = Path(sys.prefix, LIBRARY, "elasticjob", _START)
    if installed.exists():
        return str(installed)
    package = importlib.util.find_spec("elasticjob")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).with_name(_START))
