"""Configuration, merged step reports, the tail of standard error, the termination message, and failed starts."""

from __future__ import annotations

import itertools
import os
import re
import resource
from pathlib import Path

import pytest
from elasticjob_agent import config, lifecycle, termination
from elasticjob_agent.process import TAIL_BYTES, TAIL_LINES, CannotStart, ProcessSupervisor, Tail
from elasticjob_agent.step_reports import MAX_ROUNDS, PendingReports, StepReport
from elasticjob_api import names
from elasticjob_api.limits import MAX_METRICS
from hypothesis import given
from hypothesis import strategies as st

ENVIRONMENT = {
    names.ENV_POD_NAME: "job-worker-3-2",
    names.ENV_POD_UID: "uid",
    names.ENV_POD_IP: "10.0.0.3",
    names.ENV_NAMESPACE: "team",
    names.ENV_ROLE: "worker",
    names.ENV_INDEX: "3",
    names.ENV_INCARNATION: "2",
    names.ENV_MASTER_SERVICE: "job-master",
}


def test_the_master_is_found_by_service_variable_else_by_dns() -> None:
    assert config.load(ENVIRONMENT).master_host == "job-master.team.svc"
    assert config.load({**ENVIRONMENT, "JOB_MASTER_SERVICE_HOST": "127.0.0.9"}).master_host == "127.0.0.9"


def test_unset_numbers_have_defaults() -> None:
    loaded = config.load(ENVIRONMENT)
    assert (loaded.slots, loaded.process_restart_limit, loaded.drain_seconds) == (1, 0, 30)


@pytest.mark.parametrize("name", [n for n in ENVIRONMENT if n not in (names.ENV_POD_IP, names.ENV_INCARNATION)])
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(config.ConfigError, match=name):
        config.load({**ENVIRONMENT, name: ""})


@pytest.mark.parametrize(("name", "value"), [(names.ENV_INDEX, "x"), (names.ENV_SLOTS, "0"), (names.ENV_INDEX, "²")])
def test_a_bad_number_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(config.ConfigError, match=re.escape(f"{name}={value!r} must be a whole number")):
        config.load({**ENVIRONMENT, name: value})


@pytest.mark.parametrize(("given_", "missing"), [(names.ENV_TOKEN, names.ENV_CA), (names.ENV_CA, names.ENV_TOKEN)])
def test_a_token_is_never_sent_without_tls(given_: str, missing: str) -> None:
    with pytest.raises(config.ConfigError, match=missing):
        config.load({**ENVIRONMENT, given_: "x"})


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1000), st.floats(0, 10)), max_size=50))
def test_merged_reports_keep_the_newest_step_and_all_samples(told: list[tuple[int, int, float]]) -> None:
    pending = PendingReports()
    for round_, step, samples in told:
        pending.add(StepReport(round=round_, step=step, samples=samples))
    taken = {}
    while (report := pending.take()) is not None:
        taken[report.round] = report
    assert {n: report.step for n, report in taken.items()} == {
        n: max(step for round_, step, _ in told if round_ == n) for n in {round_ for round_, _, _ in told}
    }
    assert sum(report.samples for report in taken.values()) == pytest.approx(sum(samples for _, _, samples in told))


def test_waiting_reports_are_bounded_and_the_newest_round_stays() -> None:
    pending = PendingReports()
    for round_ in range(100):
        pending.add(StepReport(round=round_, step=round_))
    assert len(pending) == MAX_ROUNDS
    assert [pending.take() for _ in range(MAX_ROUNDS)][-1] == StepReport(round=99, step=99)


@given(st.binary(max_size=5000), st.lists(st.integers(0, 5000), max_size=10))
def test_the_tail_is_the_same_however_the_words_come_in(words: bytes, cuts: list[int]) -> None:
    whole, pieces = Tail(), Tail()
    whole.add(words)
    borders = [0, *sorted(min(cut, len(words)) for cut in cuts), len(words)]
    for start, end in itertools.pairwise(borders):
        pieces.add(words[start:end])
    assert whole.text() == pieces.text()
    assert len(whole.text().encode()) <= 3 * TAIL_BYTES  # a broken character becomes one of three bytes


def test_the_tail_is_the_last_lines() -> None:
    tail = Tail()
    tail.add(b"".join(b"line %d\n\n" % n for n in range(100)) + b"last")
    assert tail.text().splitlines() == [f"line {n}" for n in range(101 - TAIL_LINES, 100)] + ["last"]


def test_the_termination_message_is_cut_at_its_end_that_matters_less(tmp_path: Path) -> None:
    path = tmp_path / "message"
    termination.write({names.ENV_TERMINATION_LOG: str(path)}, "x" * 5000 + "end")
    assert path.read_text() == "x" * (termination.LIMIT - 3) + "end"


def test_a_termination_message_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    termination.write({names.ENV_TERMINATION_LOG: str(tmp_path / "no" / "folder")}, "words")


def test_a_process_that_cannot_be_started_for_want_of_the_nodes_resources_may_be_tried_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no file can be opened any more
    try:
        with pytest.raises(CannotStart, match="cannot run 'true': too many open files") as failure:
            ProcessSupervisor(["true"]).start({})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failure.value.code == os.EX_OSERR
    assert failure.value.code not in lifecycle.CANNOT_RUN


@given(st.lists(st.dictionaries(st.integers(0, 200).map(str), st.floats(0, 1), max_size=64), max_size=6))
def test_merged_reports_keep_a_bounded_number_of_metrics_and_all_of_the_newest(told: list[dict[str, float]]) -> None:
    pending = PendingReports()
    for metrics in told:
        pending.add(StepReport(round=1, step=1, metrics=metrics))
    report = pending.take()
    if report is not None:
        assert len(report.metrics) <= MAX_METRICS
        assert report.metrics.items() >= told[-1].items()
