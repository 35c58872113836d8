"""Step reports that wait for the master are merged."""

from __future__ import annotations

import pytest
from elasticjob_agent.step_reports import MAX_ROUNDS, PendingReports, StepReport
from elasticjob_api.limits import MAX_METRICS
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1000), st.floats(0, 10)), max_size=50))
def test_merged_reports_keep_the_newest_step_and_all_samples(reports: list[tuple[int, int, float]]) -> None:
    pending = PendingReports()
    for round_, step, samples in reports:
        pending.add(StepReport(round=round_, step=step, samples=samples))
    taken = {}
    while (report := pending.take()) is not None:
        taken[report.round] = report
    assert {n: report.step for n, report in taken.items()} == {
        n: max(step for round_, step, _ in reports if round_ == n) for n in {round_ for round_, _, _ in reports}
    }
    assert sum(report.samples for report in taken.values()) == pytest.approx(sum(samples for _, _, samples in reports))


def test_waiting_reports_are_bounded_and_the_newest_round_stays() -> None:
    pending = PendingReports()
    for round_ in range(100):
        pending.add(StepReport(round=round_, step=round_))
    assert len(pending) == MAX_ROUNDS
    assert [pending.take() for _ in range(MAX_ROUNDS)][-1] == StepReport(round=99, step=99)


@given(st.lists(st.dictionaries(st.integers(0, 200).map(str), st.floats(0, 1), max_size=64), max_size=6))
def test_merged_reports_keep_a_bounded_number_of_metrics_and_all_of_the_newest(reports: list[dict[str, float]]) -> None:
    pending = PendingReports()
    for metrics in reports:
        pending.add(StepReport(round=1, step=1, metrics=metrics))
    report = pending.take()
    if report is not None:
        assert len(report.metrics) <= MAX_METRICS
        assert report.metrics.items() >= reports[-1].items()
