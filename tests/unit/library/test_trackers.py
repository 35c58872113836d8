"""What goes to a tracker, and what its failures do: nothing to the training."""

from __future__ import annotations

import ctypes
import os
import posixpath
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import elasticjob
import pytest
from elasticjob import _process, _tracking
from elasticjob._trackers import WORLD_SIZE, Failure, Report, Unwritten, mlflow_name
from elasticjob._tracking import MOST_REPORTS, TrackerProcess, Tracking
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_agent import FakeAgent, fake_agent
from tests.support.wait import wait_until

pytestmark = pytest.mark.guarantee("trackers")

Answer = Callable[[list[Report]], dict[str, str]]


class Written:
    """Keeps the reports that it gets, and answers as it is told."""

    def __init__(self, answer: Answer = lambda reports: {}) -> None:
        self.answer = answer
        self.got: list[list[Report]] = []
        self.closed = False

    @property
    def steps(self) -> list[int]:
        return [report.step for reports in self.got for report in reports]

    def write(self, reports: list[Report]) -> dict[str, str]:
        if not reports:
            self.closed = True
            return {}
        answer = self.answer(reports)
        if not answer:
            self.got.append(list(reports))
        return answer

    def end(self) -> None:
        pass


def tracking(written: Written, **arguments: object) -> Tracking:
    fields = {"why_not": lambda: None, "start": lambda: written, "retry_seconds": 0.01, **arguments}
    return Tracking("mlflow", **fields)  # type: ignore[arg-type]


def report(step: int, *, world: int = 1) -> Report:
    return Report(world, 2, step, 0, {"loss": 1.0})


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abc"))), max_size=30))
def test_each_metric_has_each_step_at_most_once_and_in_order(
    reported: list[tuple[int, set[str]]],
) -> None:
    unwritten = Unwritten({"a": 3})
    written = [
        (name, step)
        for step, metrics in reported
        for name in unwritten.values(Report(1, 2, step, 0, dict.fromkeys(metrics, 1.0)))
    ]
    for name in ("a", "b", "c", WORLD_SIZE):
        steps = [step for metric, step in written if metric == name]
        assert steps == sorted(set(steps))
        assert name != "a" or min(steps, default=9) > 3


def test_a_second_report_of_a_step_adds_the_metrics_that_the_first_one_had_not() -> None:
    unwritten = Unwritten(floor=4)
    assert unwritten.values(Report(1, 2, 4, 0, {"loss": 1.0})) == {}
    assert unwritten.values(Report(1, 2, 5, 0, {"loss": 1.0})) == {"loss": 1.0, WORLD_SIZE: 2.0}
    assert unwritten.values(Report(1, 2, 5, 0, {"loss": 2.0, "accuracy": 0.5})) == {"accuracy": 0.5}


@given(st.text(min_size=1, max_size=64))
def test_mlflow_takes_every_name(name: str) -> None:
    given_name = mlflow_name(name)
    assert given_name
    assert posixpath.normpath(given_name) == given_name
    assert not given_name.startswith((".", "/")) or given_name.strip(".")


def test_all_reports_are_passed_on_before_the_end_and_the_worlds_one_after_the_other() -> None:
    written = Written()
    passing = tracking(written)
    for step in range(1, 700):
        passing.add(report(step, world=1 + step // 300))
    passing.close()
    assert written.steps == [*range(1, 700)]
    assert all(len({each.round for each in reports}) == 1 for reports in written.got)
    assert written.closed
    passing.add(report(700))
    assert written.steps[-1] == 699


def test_a_process_that_the_others_do_not_wait_for_writes_nothing() -> None:
    reasons: Iterator[str | None] = iter(["its round is over", "the agent is unreachable"])
    written = Written()
    passing = tracking(written, why_not=lambda: next(reasons, None))
    passing.add(report(1))
    wait_until("a later try has written it", lambda: written.steps == [1])
    passing.close()
    cut_off = tracking(never := Written(), why_not=lambda: "its round is over")
    cut_off.add(report(1))
    cut_off.close()
    assert not never.got
    assert not never.closed, "the run belongs to the others"


def test_an_unreachable_tracker_is_tried_again_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [{"failure": Failure.OPEN, "error": "no route"}] * 5
    written = Written(lambda reports: failures.pop() if failures else {})
    passing = tracking(written)
    passing.add(report(1))
    passing.add(report(2))
    wait_until("both are written", lambda: written.steps == [1, 2])
    passing.close()
    assert caplog.text.count("mlflow cannot be written: no route. The training goes on") == 1
    assert passing.dropped == 0


def test_reports_that_a_tracker_refuses_do_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = {"failure": Failure.WRITE, "error": "bad name"}
    written = Written(lambda reports: refused if reports[0].step == 1 else {})
    passing = tracking(written)
    passing.add(report(1))
    wait_until("it is dropped", lambda: passing.dropped == 1)
    passing.add(report(2))
    passing.close()
    assert written.steps == [2]
    assert "mlflow: it refuses reports: bad name" in caplog.text
    assert "mlflow: 1 reports of metrics were not written" in caplog.text


def test_a_slow_tracker_costs_bounded_memory_and_the_oldest_reports(
    caplog: pytest.LogCaptureFixture,
) -> None:
    passing = tracking(written := Written(), why_not=lambda: "not yet", retry_seconds=60)
    for step in range(1, MOST_REPORTS + 1000):
        passing.add(report(step))
    assert len(passing._waiting) == MOST_REPORTS
    passing._why_not = lambda: None
    passing.close()
    assert written.steps[-1] == MOST_REPORTS + 999
    assert len(written.steps) + passing.dropped == MOST_REPORTS + 999
    assert caplog.text.count("the oldest reports are dropped") == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"failure": Failure.UNUSABLE, "error": "No module named 'mlflow'"},
        OSError("No module named 'mlflow'"),
    ],
)
def test_a_tracker_that_is_not_there_is_given_up_and_said(
    answer: dict[str, str] | OSError, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(reports: list[Report]) -> dict[str, str]:
        if isinstance(answer, OSError):
            raise answer
        return answer

    passing = tracking(written := Written(fail))
    passing.add(report(1))
    wait_until("it is given up", lambda: passing._ended)
    passing.add(report(2))
    passing.close()
    assert not written.got
    assert not passing._waiting
    assert caplog.text.count("No module named 'mlflow'") == 1


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    monkeypatch.setenv("ELASTICJOB_JOB_UID", "uid")
    with fake_agent(tmp_path, monkeypatch) as found:
        yield found
    _tracking._reset_after_fork()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Written:
    written = Written()
    monkeypatch.setattr(
        _tracking, "Tracking", lambda name, why_not: tracking(written, why_not=why_not)
    )
    return written


def test_only_rank_0_of_a_job_with_a_tracker_passes_its_metrics_on(
    agent: FakeAgent, begun: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_TRACKER", "mlflow")
    for rank, step in ((1, 1), (0, 2)):
        place = _process.Place(round=3, rank=rank, size=2)
        monkeypatch.setattr(_process.joined, "place", place)
        elasticjob.report_step(step, metrics={"loss": 0.5, "broken": float("nan")})
    elasticjob.report_step(3)
    passing = _tracking._of_process.tracking
    assert passing is not None
    passing.close()
    [[found]] = begun.got
    assert (found.round, found.size, found.step, found.metrics) == (3, 2, 2, {"loss": 0.5})


def test_under_horovod_the_rank_is_that_of_its_present_world(
    agent: FakeAgent, begun: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_TRACKER", "mlflow")
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    elasticjob.report_step(1, metrics={"loss": 0.5})
    for name, value in (("HOROVOD_RANK", b"0"), ("HOROVOD_SIZE", b"1")):
        ctypes.CDLL(None).setenv(name.encode(), value, 1)  # as Horovod does, below Python
    elasticjob.report_step(2, metrics={"loss": 0.5})
    passing = _tracking._of_process.tracking
    assert passing is not None
    passing.close()
    assert [(each.size, each.step) for [each] in begun.got] == [(1, 2)]


def test_an_unknown_tracker_is_said_once_and_stops_nothing(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ELASTICJOB_TRACKER", "tensorbord")
    for step in range(3):
        elasticjob.report_step(step, metrics={"loss": 0.5})
    assert caplog.messages == [
        "ELASTICJOB_TRACKER=tensorbord: there is no such tracker; use mlflow, tensorboard, wandb"
    ]
    agent.wait(lambda agent: agent.reports)


def test_the_process_that_writes_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_TRACKER", "tensorboard")
    monkeypatch.setenv("ELASTICJOB_JOB_UID", "uid")
    monkeypatch.delenv("ELASTICJOB_TRACKER_FOLDER", raising=False)
    process = TrackerProcess()
    answer = process.write([report(1)])
    process.end()
    assert answer == {
        "failure": "unusable",
        "error": "set ELASTICJOB_TRACKER_FOLDER to a folder for TensorBoard",
    }


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes a text the job's MLflow."""

    def install(text: str) -> None:
        package = tmp_path / "mlflow"
        package.mkdir()
        (package / "entities.py").write_text("Metric = tuple")
        (package / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("ELASTICJOB_TRACKER", "mlflow")
        monkeypatch.setenv("ELASTICJOB_JOB_UID", "uid")

    return install


def test_a_library_that_raises_and_prints_becomes_an_answer(
    library: Callable[[str], None],
) -> None:
    library(
        "print('hello')\nclass MlflowClient:\n"
        "    def __init__(self): raise ZeroDivisionError('first line\\nsecond line')\n"
    )
    process = TrackerProcess()
    answers = [process.write([report(1)]), process.write([report(1)])]
    process.end()
    assert answers == [{"failure": "open", "error": "ZeroDivisionError: first line"}] * 2


def test_a_store_of_files_that_mlflow_refuses_names_the_way_out(
    library: Callable[[str], None],
) -> None:
    library(
        "class MlflowClient:\n    def __init__(self): raise RuntimeError('in maintenance. ' * 30 "
        "+ 'Set `MLFLOW_ALLOW_FILE_STORE=true` to opt out of this exception.')\n"
    )
    process = TrackerProcess()
    answer = process.write([report(1)])
    process.end()
    assert answer["failure"] == "unusable"
    assert "set MLFLOW_ALLOW_FILE_STORE=true, or MLFLOW_TRACKING_URI to a" in answer["error"]


@pytest.mark.guarantee("diagnosis-ends-no-agent")
def test_a_process_without_a_thread_to_spare_trains_on_and_writes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written()
    passing = tracking(written)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
        passing.add(report(1))
    passing.add(report(2))
    passing.close()
    assert written.steps == [1, 2]


FORKING = """
import os, time
if (child := os.fork()) == 0:
    time.sleep(1000)
    os._exit(0)
with open(os.environ["CHILD"], "w") as file:
    file.write(str(child))
class MlflowClient:
    def __init__(self): THEN
"""


@pytest.mark.parametrize(
    ("then", "why"),
    [("time.sleep(1000)", "exit code -9"), ("os._exit(3)", "exit code 3")],
    ids=["hangs", "ends"],
)
@pytest.mark.guarantee("diagnosis-ends-no-agent")
def test_a_library_that_forks_holds_neither_the_training_nor_its_end(
    then: str,
    why: str,
    library: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    library(FORKING.replace("THEN", then))
    child = tmp_path / "child"
    monkeypatch.setenv("CHILD", str(child))
    made: list[TrackerProcess] = []

    def start() -> TrackerProcess:
        made.append(TrackerProcess())
        return made[-1]

    passing = Tracking("mlflow", why_not=lambda: None, start=start)
    for step in range(1000):  # more than a pipe takes
        passing.add(report(step))
    wait_until("the library's child", lambda: child.exists() and child.read_text())
    try:
        ending = threading.Thread(target=passing.close, args=(0.1,), daemon=True)
        if why == "exit code 3":
            wait_until("a warning", lambda: why in caplog.text)
        ending.start()
        ending.join(30)
        assert not ending.is_alive(), "the child holds the pipes, but not the training"
        assert f"exit code {made[0]._popen.returncode}" == why
    finally:
        os.kill(int(child.read_text()), signal.SIGKILL)


def test_no_tracker_costs_a_program_no_import() -> None:
    code = "import elasticjob, sys; print({'mlflow', 'wandb', 'tensorboard'} & {*sys.modules})"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ELASTICJOB_TRACKER": "mlflow"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "set()\n"
