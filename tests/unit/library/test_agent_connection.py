"""The training process' connection never blocks, never grows, and survives forks."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
import tracemalloc
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

import elasticjob
import numpy
import pytest
from elasticjob import _agent_connection
from elasticjob_api import names

from tests.support.fake_agent import fake_agent
from tests.support.wait import wait_until


def test_steps_samples_and_seconds_add_up_however_they_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch) as agent:
        connection = _agent_connection.agent_connection()
        assert connection is not None
        for step in range(10, 5_001, 10):
            connection.saved(0.5, step)
            elasticjob.report_step(
                step, total=5_000, samples=3, metrics={"loss": 1 / step}, compute_seconds=0.25
            )
        agent.wait(lambda fake: fake.reports and fake.reports[-1]["step"] == 5_000)
        assert len(agent.reports) < 100, "the reports were not merged"
        assert agent.sum("steps") == 4_990, (
            "all but those before the first report, of which nothing is known"
        )
        assert (agent.sum("samples"), agent.sum("compute_seconds")) == (1_500, 125)
        assert agent.sum("save_seconds") == 250
        assert agent.reports[-1]["saved_bytes"] == 5_000
        assert agent.reports[-1]["total"] == 5_000
        assert agent.reports[-1]["metrics"] == {"loss": 1 / 5_000}


@pytest.mark.guarantee("several-processes-per-pod")
def test_a_process_says_which_it_is_before_its_first_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_LOCAL_RANK, "2")
    monkeypatch.setenv(names.ENV_LOCAL_SIZE, "3")
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as earlier:
        server.bind(path)
        server.listen(0)
        earlier.connect(path)  # the next one waits
        connection = _agent_connection.AgentConnection(path)
        connection.report(1, None, 8.0, {}, 0.0)
        server.accept()[0].close()
        accepted, _ = server.accept()
        with accepted, accepted.makefile() as received:
            first = json.loads(received.readline())
            second = json.loads(received.readline())
    wait_until("the connection has ended", lambda: connection._disconnected)
    connection.close_inherited_socket()
    assert first == {"process": 2, "of": 3}
    assert second["samples"] == 8.0


def test_an_agent_that_does_not_read_costs_neither_time_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch, reads=False):
        monkeypatch.setattr(_agent_connection, "REPORT_SECONDS", 0.0)  # fills the socket sooner
        connection = _agent_connection.agent_connection()
        assert connection is not None
        step = 0

        def report(number: int) -> None:
            nonlocal step
            for _ in range(number):
                step += 1
                elasticjob.report_step(step, samples=1, metrics={f"{step % 1000}-{'x' * 50}": 1.0})

        # Until a write waits for good: thousands of reports wait for its end, and the socket is
        # full. Select alone does not say so, since a socket takes a little after it is not ready.
        while (
            connection._report.get("samples", 0) < 20_000
            or select.select([], [connection._socket], [], 0)[1]
        ):
            report(100)
            assert step < 3_000_000, "the socket never filled"
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            report(50_000)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 200_000
        assert connection._writing, "no report has waited for the end of this write"
        assert connection._report["samples"] > 50_000
        assert not elasticjob.should_stop()


def test_without_the_agent_steps_continue_and_calls_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_SOCKET", str(tmp_path / "nothing"))
    _agent_connection.reset_after_fork()
    try:
        for step in range(1000):
            elasticjob.report_step(step)
        assert not elasticjob.should_stop()
        elasticjob.confirm_stop()
        with pytest.raises(elasticjob.AgentError, match="the agent is unreachable"):
            elasticjob.members()
    finally:
        monkeypatch.delenv("ELASTICJOB_SOCKET")
        _agent_connection.reset_after_fork()


def test_a_stop_requests_a_checkpoint_until_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch, stop_at=1) as agent:
        assert not elasticjob.checkpoint_requested()
        agent.wait(lambda fake: {"stoppable": True} in fake.messages)
        elasticjob.report_step(1)
        connection = _agent_connection.agent_connection()
        assert connection is not None
        while not elasticjob.should_stop():
            time.sleep(0.001)
        assert elasticjob.checkpoint_requested()
        elasticjob.confirm_stop()
        assert (elasticjob.should_stop(), elasticjob.checkpoint_requested()) == (True, False)
        agent.wait(lambda fake: fake.messages[-1] == {"stopping": True})


def test_invalid_metrics_are_dropped_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch) as agent:
        elasticjob.report_step(1, metrics={"nan": float("nan"), "x" * 65: 1.0, "loss": 0.5})
        agent.wait(lambda fake: fake.reports)
        assert agent.reports[0]["metrics"] == {"loss": 0.5}
        with pytest.warns(UserWarning, match="100 metrics: only 64 can be shown"):
            elasticjob.report_step(2, metrics={f"m{n}": n for n in range(100)})
        agent.wait(lambda fake: len(fake.reports[-1]["metrics"]) == 64)


def test_a_value_that_cannot_be_sent_is_an_error_of_its_call_and_ends_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch) as agent:
        connection = _agent_connection.agent_connection()
        assert connection is not None
        with pytest.raises(TypeError):
            connection.call("get_values", keys=[{"a"}])
        connection.call("add_value", key="n", amount=numpy.int64(3))
        sent = agent.wait(lambda fake: [m for m in fake.messages if m.get("call") == "add_value"])
        assert [each["amount"] for each in sent] == [3]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"samples": -1}, "samples=-1"),
        ({"samples": float("nan")}, "samples=nan"),
        ({"compute_seconds": -2}, "=-2"),
    ],
)
def test_an_invalid_number_is_refused_by_name(fields: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        elasticjob.report_step(1, **fields)  # type: ignore[arg-type]


def _open_files() -> set[str]:
    return {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def _load_data(steps: list[int], parents: str) -> None:
    assert parents not in _open_files(), "the child has taken the parent's connection along"
    for step in steps:
        elasticjob.report_step(step)
    present = _agent_connection.agent_connection()
    assert present is not None
    present.flush(10)


@pytest.mark.parametrize("process", [ForkProcess, SpawnProcess], ids=["fork", "spawn"])
def test_a_forked_process_has_its_own_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: type[BaseProcess]
) -> None:
    with fake_agent(tmp_path, monkeypatch) as agent:
        elasticjob.report_step(1)
        connection = _agent_connection.agent_connection()
        assert connection is not None
        parents = str(Path(f"/proc/self/fd/{connection._socket.fileno()}").readlink())
        with connection._changed:  # as if another thread reported just now
            child = process(target=_load_data, args=([100, 101], parents))
            child.start()
        child.join(20)
        assert child.exitcode == 0
        agent.wait(lambda fake: {1, 101} <= {report["step"] for report in fake.reports})
        agent.wait(lambda fake: fake.disconnects == 1)
        elasticjob.report_step(2)
        agent.wait(lambda fake: fake.reports[-1]["step"] == 2)


def test_a_forked_process_that_ends_without_a_call_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_agent(tmp_path, monkeypatch, reads=False):
        elasticjob.report_step(1)
        pid = os.fork()
        if pid == 0:
            _agent_connection.flush_at_exit()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_the_last_step_is_reported_before_the_interpreter_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import elasticjob\nfor step in range(1000): elasticjob.report_step(step)"
    with fake_agent(tmp_path, monkeypatch) as agent:
        subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
        agent.wait(lambda fake: fake.disconnects)
        assert agent.reports[-1]["step"] == 999


def test_an_agent_that_does_not_read_does_not_keep_the_interpreter_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """if True:
        import elasticjob
        from elasticjob import _agent_connection
        _agent_connection.REPORT_SECONDS = 0.0
        agent = _agent_connection.agent_connection()
        agent.send({"filling": "x" * 10_000_000})
        elasticjob.report_step(1)
    """
    with fake_agent(tmp_path, monkeypatch, reads=False):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


def test_the_first_call_can_come_at_the_interpreters_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import atexit, elasticjob\natexit.register(elasticjob.report_step, 1)"
    with fake_agent(tmp_path, monkeypatch):
        ended = subprocess.run(
            [sys.executable, "-c", code], check=True, timeout=20, capture_output=True, text=True
        )
        assert ended.stderr == ""
