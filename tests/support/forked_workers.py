"""Runs the tests of a session in several processes, forked after the tests have been collected.

Collecting takes as much CPU as a tenth of all tests, so it is done once. `--workers=N` forks N
processes from the one that has collected. The tests of a file run one after another in one of them,
with the fixtures of its module and of its session; the files run in parallel, each handed to the
worker that asks next. The parent runs no test. It prints the workers' reports, and fails the test
whose worker was killed. A worker ends with the parent.
"""

from __future__ import annotations

import gc
import os
import random
import selectors
import sys
import traceback
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest
from elasticjob_processes.exec_child import die_with_parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, help="run the tests in as many processes; 0: in this one"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in workers, if they are asked for."""
    count = session.config.getoption("--workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    _Run(session, _files(session.items)).run(count)
    return True


def _files(items: list[pytest.Item]) -> deque[list[pytest.Item]]:
    """Return the tests in groups by file, in the order of their collection."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(item.nodeid.partition("::")[0], []).append(item)
    return deque(groups.values())


@dataclass
class _Worker:
    """The parent's view of a worker.

    Attributes:
        running: the node id of the test that it runs.
        waiting: the tests that it has been given and has not begun.
    """

    pid: int
    connection: Connection
    running: str = ""
    waiting: list[pytest.Item] = field(default_factory=list)
    id: str = ""

    @property
    def gateway(self) -> _Worker:
        """Return this object, where pytest's terminal reporter looks for the `id` of a worker."""
        return self


class _Run:
    """The parent's part of a run: it hands out files and collects reports."""

    def __init__(self, session: pytest.Session, files: deque[list[pytest.Item]]) -> None:
        self._session = session
        self._files = files
        self._numbers = {item.nodeid: number for number, item in enumerate(session.items)}
        self._ready = selectors.DefaultSelector()

    def run(self, count: int) -> None:
        gc.freeze()  # a collection in a worker would copy the pages of all collected objects
        # The workers share the folder of this run, and with it the clusters.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for _ in range(min(count, len(self._files))):
            self._fork()
        while self._ready.get_map():
            for key, _ in self._ready.select():
                self._receive(key.data)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            ours.close()
            for key in self._ready.get_map().values():
                key.data.connection.close()
            _work(self._session, theirs)
        theirs.close()
        worker = _Worker(pid, ours, id=str(pid))
        self._ready.register(worker.connection, selectors.EVENT_READ, worker)

    def _receive(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except EOFError:
            self._ended(worker)
            return
        if message["kind"] == "next":
            items = self._next_file()
            worker.waiting += items
            worker.connection.send([self._numbers[item.nodeid] for item in items])
        elif message["kind"] == "begins":
            worker.running = worker.waiting.pop(0).nodeid
        else:
            self._report(worker, message["report"])

    def _next_file(self) -> list[pytest.Item]:
        """Return the next file's tests; an empty list at the end, or after `--exitfirst`."""
        if not self._files or self._session.shouldfail or self._session.shouldstop:
            return []
        return self._files.popleft()

    def _report(self, worker: _Worker, data: dict[str, Any]) -> None:
        config = self._session.config
        self._log(worker, config.hook.pytest_report_from_serializable(config=config, data=data))

    def _log(self, worker: _Worker, report: Any) -> None:
        report.node = worker  # by this the terminal reporter knows that files run in parallel
        self._session.config.hook.pytest_runtest_logreport(report=report)
        del report.node

    def _ended(self, worker: _Worker) -> None:
        self._ready.unregister(worker.connection)
        worker.connection.close()
        _, status = os.waitpid(worker.pid, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            report = pytest.TestReport(
                nodeid=worker.running or "a worker",
                location=(worker.running.partition("::")[0], None, worker.running),
                keywords={},
                outcome="failed",
                longrepr=f"its worker ended with exit code {code}",
                when="call",
            )
            self._log(worker, report)
            if worker.running and worker.waiting:
                self._files.appendleft(worker.waiting)
                self._fork()


def _work(session: pytest.Session, connection: Connection) -> None:
    """Run the tests that the parent hands out, and end this process."""
    code = 1
    die_with_parent()
    try:
        _prepare(session.config)
        session.config.pluginmanager.register(_Reporter(session.config, connection))
        _run_files(session, connection)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc(file=sys.__stderr__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _prepare(config: pytest.Config) -> None:
    """Give this process an output of its own; the parent prints, and this process does not."""
    random.seed()
    config.pluginmanager.unregister(name="terminalreporter")
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()


def _run_files(session: pytest.Session, connection: Connection) -> None:
    """Run file after file.

    The next file is asked for before the last test of a file ends: fixtures end after the last test
    that uses them.
    """
    items = deque(_next_items(session, connection))
    while items:
        item = items.popleft()
        if not items:
            items.extend(_next_items(session, connection))
        connection.send({"kind": "begins"})
        following = items[0] if items else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _next_items(session: pytest.Session, connection: Connection) -> list[pytest.Item]:
    connection.send({"kind": "next"})
    return [session.items[number] for number in connection.recv()]


class _Reporter:
    """Sends a worker's reports to the parent."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send({"kind": "report", "report": data})
